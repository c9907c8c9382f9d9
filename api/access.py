"""Who and what pages may use the service: asked of a request before anything is spent on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import structlog
from flask import Request

from api.addresses import Network, owner_name, sender_of
from api.admission import Refusal, bad_handshake
from api.attempts import WrongKeys
from api.credentials import QUERY, Conflict, presented_key
from api.keys import ANYBODY, Expired, KeyRing, Principal
from api.metrics import KeyMetrics
from api.origins import Allowed, host_allowed, origin_allowed, split_authority
from queueing.clock import Clock

HOW = f"send it as `Authorization: Bearer KEY`, as subprotocols `token, KEY`, or as ?{QUERY}=KEY"

log = structlog.get_logger()


class Access:
    """Rules of one web process. Thread-safe. ``metrics_open``: /metrics needs no key; ``trusted``: the proxies whose
    word on a client's address is taken."""

    def __init__(
        self,
        keys: KeyRing,
        allowed: Allowed,
        clock: Clock,
        metrics: KeyMetrics,
        *,
        metrics_open: bool = False,
        trusted: Sequence[Network] = (),
    ) -> None:
        self._keys = keys
        self._allowed = allowed
        self._metrics = metrics
        self._metrics_open = metrics_open
        self._trusted = trusted
        self._wrong = WrongKeys(clock)

    def stream(self, request: Request) -> Principal | Refusal:
        """Whose stream an upgrade request wants to open, or why it may not."""
        refusal = self.host(request) or self._origin(request)
        return refusal if refusal is not None else self._principal(request)

    def inside(self, request: Request) -> Refusal | None:
        """Why a request may not look into the service: its status and metrics."""
        if self._metrics_open and request.path == "/metrics":
            return None
        found = self._principal(request)
        return found if isinstance(found, Refusal) else None

    def host(self, request: Request) -> Refusal | None:
        """Why this server may not be called what ``Host`` calls it."""
        authority = split_authority(request.headers.get("Host", ""))
        if authority is None:
            return bad_handshake("the Host header is missing or malformed; write NAME or NAME:PORT")
        if host_allowed(authority[0], self._allowed):
            return None
        return self._refuse(
            "host",
            Refusal(
                403,
                "host",
                "host_refused",
                f"this server is not called {authority[0]!r}; use its address, or list the name in "
                "HEARLINE_ALLOWED_HOSTS",
            ),
        )

    def _origin(self, request: Request) -> Refusal | None:
        origin = request.headers.get("Origin")
        if origin_allowed(origin, request.headers.get("Host", ""), self._allowed):
            return None
        return self._refuse(
            "origin",
            Refusal(
                403,
                "origin",
                "origin_refused",
                f"pages of {origin!r} may not open streams here; list it in HEARLINE_ALLOWED_ORIGINS",
            ),
        )

    def _principal(self, request: Request) -> Principal | Refusal:
        if not self._keys.required:
            return ANYBODY
        try:
            key = presented_key(request.headers, request.args)
        except Conflict:
            return self._unauthorized("conflicting_keys", "the request carries several API keys that differ; send one")
        if key is None:
            return self._unauthorized("no_key", f"this service needs an API key; {HOW}")
        found = self._keys.find(key)
        if isinstance(found, Principal):
            return found
        peer = sender_of(request, self._trusted)
        address = str(peer or "")
        wait_s = self._wrong.one_more(owner_name(peer) if peer else "")
        if wait_s > 0:
            retry_after_s = math.ceil(wait_s)
            message = "too many wrong API keys came from this address; try again later"
            return self._refuse(
                "too_many_attempts",
                Refusal(429, "too_many_attempts", "rate_limited", message, retry_after_s=retry_after_s),
            )
        log.warning("api_key_refused", address=address, expired=isinstance(found, Expired))
        if isinstance(found, Expired):  # whoever holds it may know
            return self._unauthorized("expired_key", f"this API key was valid until {found.day} (UTC); ask for another")
        return self._unauthorized(
            "wrong_key", "this API key is not valid here: mistyped, revoked, or of another service"
        )

    def _unauthorized(self, reason: str, message: str) -> Refusal:
        challenge = 'Bearer realm="hearline"' + ("" if reason == "no_key" else ', error="invalid_token"')
        return self._refuse(reason, Refusal(401, reason, "unauthorized", message, {"WWW-Authenticate": challenge}))

    def _refuse(self, reason: str, refusal: Refusal) -> Refusal:
        self._metrics.refused.labels(reason).inc()
        return refusal
