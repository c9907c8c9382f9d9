"""The plain HTTP answers: liveness, readiness, status, metrics.

None of them waits for Redis: they answer from the pulse's snapshot, so they answer while Redis hangs and while
every stream is in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from api.collectors import QueueReader
from api.metrics_page import MetricsPage
from api.service import StreamService


def readiness(service: StreamService) -> list[str]:
    """What is missing for a stream to be served now; empty when ready."""
    reasons = []
    if service.draining:
        reasons.append("this server process ends")
    if problem := service.pulse.redis_error:
        reasons.append(problem)
    elif not service.pulse.workers_alive:
        reasons.append("no worker with a loaded model has a fresh heartbeat; is `python -m workers` running?")
    if (refusal := service.admission.overload) and refusal.reason == "redis_memory":
        reasons.append(refusal.message)
    if not service.listener.connected:
        reasons.append("the subscription for results does not stand")
    return reasons


def status(service: StreamService, reader: QueueReader) -> dict[str, Any]:
    """Everything the page shows of the service, JSON-able. Times in seconds."""
    reasons = readiness(service)
    snapshot = service.pulse.snapshot
    queue = None if service.pulse.redis_error else reader.view()
    return {
        "ready": not reasons,
        "reasons": reasons,
        "streams": {
            "process": service.streams(),
            "all": queue.streams if queue else None,
            "max": service.settings.max_streams,
        },
        "policy": service.pulse.policy,
        "queue": {
            "waiting": queue.depth if queue else None,
            "oldest_age_s": round(queue.oldest_age_s, 3) if queue else None,
            "leased": queue.leased if queue else None,
            "dead": queue.dead if queue else None,
        },
        "workers": [
            {"id": worker.id, "state": worker.state, "model": worker.model, "ready": worker.ready}
            for worker in (snapshot.workers if snapshot else ())
        ],
        "limits": service.limits.wire(service.limits.endpoint_s).model_dump(),
    }


def blueprint(service: StreamService, reader: QueueReader, registry: Callable[[], CollectorRegistry]) -> Blueprint:
    """The routes; ``registry`` gives what a scrape shall collect."""
    page = MetricsPage(lambda: generate_latest(registry()), service.streams, service.clock)
    routes = Blueprint("health", __name__)

    @routes.get("/health")
    def health() -> Response:
        return jsonify({"status": "alive", "draining": service.draining})

    @routes.get("/ready")
    def ready() -> tuple[Response, int]:
        reasons = readiness(service)
        body: dict[str, Any] = {"ready": not reasons}
        if reasons:
            body |= {"reason": "; ".join(reasons), "reasons": reasons}
        elif refusal := service.admission.overload:
            # For some seconds, and every front end of the queue alike: no reason to take this one out of service.
            body["overloaded"] = refusal.message
        return jsonify(body), 503 if reasons else 200

    @routes.get("/v1/status")
    def current_status() -> Response:
        return jsonify(status(service, reader))

    @routes.get("/metrics")
    def metrics() -> Response:
        return Response(page.get(), content_type=CONTENT_TYPE_LATEST)

    @routes.after_request
    def fresh(response: Response) -> Response:
        response.headers["Cache-Control"] = "no-store"
        return response

    return routes
