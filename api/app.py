"""The Flask application: routes, and nothing that decides."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from api.access import Access
from api.admission import handshake_problem, upgrade_required
from api.answering import Answering
from api.collectors import QueueReader
from api.health import blueprint
from api.server import EXTENSION
from api.service import StreamService
from api.upgrade import StreamSock
from sessions.wire import Error, encode

STREAM_PATH = "/v1/stream"
PROBES = ("/health", "/ready")
"""Asked by whatever name or address a load balancer has for this machine; they say nothing that is worth hiding."""
INSIDE = ("/metrics", "/v1/status")
"""They tell of workers, models and load: not for strangers."""
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; script-src 'self' blob:; worker-src 'self' blob:; "
    "connect-src 'self' ws: wss:; img-src 'self' data:; media-src 'self' blob:; frame-ancestors 'none'",
}


def create_app(
    service: StreamService, access: Access, reader: QueueReader, registry: Callable[[], CollectorRegistry]
) -> Flask:
    """All routes over a running service. ``registry`` gives what a scrape of /metrics shall collect."""
    app = Flask(__name__, static_folder="static", static_url_path="/static")
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 300
    app.extensions[EXTENSION] = service
    app.register_blueprint(blueprint(service, reader, registry))
    sock = StreamSock(app, service.open_socket)
    sock.gated_route(STREAM_PATH, service.admission.admit)(service.serve)

    app.wsgi_app = Answering(app.wsgi_app, aside=(STREAM_PATH, *INSIDE))  # type: ignore[method-assign]

    @app.before_request
    def check() -> Response | None:
        if request.path == STREAM_PATH or request.path in PROBES:  # a stream's gate asks for more
            return None
        refusal = access.host(request) or (access.inside(request) if request.path in INSIDE else None)
        return refusal.response() if refusal is not None else None

    @app.get("/")
    def page() -> Response:
        return app.send_static_file("index.html")

    @app.route(STREAM_PATH, methods=["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
    def plain_http() -> Response:
        refusal = upgrade_required()
        service.metrics.rejected.labels(refusal.reason).inc()
        return refusal.response()

    @app.errorhandler(HTTPException)
    def problem(error: HTTPException) -> Response:
        if isinstance(error, MethodNotAllowed) and request.path == STREAM_PATH:
            # Only an upgrade gets here (plain requests of every method have their route), and not with GET.
            refusal = handshake_problem(request.method, request.headers) or upgrade_required()
            service.metrics.rejected.labels(refusal.reason).inc()
            return refusal.response()
        body = Error(
            code=(error.name or "error").lower().replace(" ", "_"), message=error.description or "", fatal=True
        )
        return Response(encode(body) + "\n", status=error.code, mimetype="application/json", headers=_kept(error))

    @app.after_request
    def secure(response: Response) -> Response:
        response.headers.update(SECURITY_HEADERS)
        return response

    return app


def _kept(error: HTTPException) -> dict[str, str]:
    """An error's own headers but those of its HTML body."""
    return {name: value for name, value in error.get_headers() if name.lower() != "content-type"}
