"""What can go wrong between a client and the service.

ClientError
+-- CannotConnect    nobody answers at this address, or what answers is not the service
+-- Refused          the service is there and says no, before the upgrade: HTTP status, code, retry_after_s
+-- ServerFailed     the stream broke: a fatal error message, or a close before `done`
+-- CannotResume     the connection broke, and the stream could not be taken up again in time
+-- NoAnswer         nothing came within a timeout; which one, and how long it was
+-- ProtocolBroken   the server sent something that is not of the protocol

Input that cannot be streamed is `loadgen.clips.ClipError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

REFUSAL_STATUSES = frozenset({401, 403, 413, 429, 503})
UNAUTHORIZED = 401
GIVE_KEY = "`hearline stream` and `hearline load` send the key of --api-key or HEARLINE_API_KEY (in Python: api_key)"
"""The service can only name the header, which whoever types a command does not write."""

FIXES = {
    404: "check the path in --url: the service's is /v1/stream, and none is needed",
    405: "check port and path in --url: another kind of service has this one",
    502: "a proxy answers, and the service behind it does not: see whether that one runs",
    504: "a proxy answers, and the service behind it does not: see whether that one runs",
}
"""For answers of others than the service."""


class ClientError(Exception):
    """Base of everything that a stream can fail with."""


class CannotConnect(ClientError):
    """No connection to ``url``; ``fix``: what helps against this ``reason``."""

    def __init__(self, url: str, reason: str, fix: str = "") -> None:
        self.url = url
        self.reason = reason
        self.fix = fix
        super().__init__(f"cannot connect to {url}: {reason}{f'; {fix}' if fix else ''}")


class Refused(ClientError):
    """The service refused the stream before the upgrade; ``retry_after_s`` is its advice, if it gave any."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None) -> None:
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s
        retry = "" if retry_after_s is None else f"; try again in {retry_after_s:g} s"
        own = f"; {GIVE_KEY}" if status == UNAUTHORIZED else ""
        super().__init__(f"the service refused the stream (HTTP {status}, {code}): {message}{own}{retry}")


class ServerFailed(ClientError):
    """The stream ended without `done`. ``code``: of the error message, ``""`` when there was none."""

    def __init__(self, code: str, message: str, close_code: int | None, retry_after_s: float | None = None) -> None:
        self.code = code
        self.close_code = close_code
        self.retry_after_s = retry_after_s
        closed = "the connection broke" if close_code is None else f"closed with {close_code}"
        retry = "" if retry_after_s is None else f"; try again in {retry_after_s:g} s"
        super().__init__(f"the stream failed ({code or 'no error message'}, {closed}): {message}{retry}")


class CannotResume(ClientError):
    """The connection was lost and did not come back; ``last``: what the last of ``attempts`` attempts failed with."""

    def __init__(self, last: ClientError, waited_s: float, attempts: int) -> None:
        self.last = last
        self.waited_s = waited_s
        self.attempts = attempts
        super().__init__(
            f"the connection broke, and the stream could not be resumed ({attempts} attempts, {waited_s:.1f} s); "
            f"the last one: {last}"
        )


class NoAnswer(ClientError):
    """The server is silent; ``what`` was waited for, ``waited_s`` seconds."""

    def __init__(self, what: str, waited_s: float) -> None:
        self.what = what
        self.waited_s = waited_s
        super().__init__(f"no answer from the service: {what} did not happen within {waited_s:g} s")


class ProtocolBroken(ClientError):
    """The server's message is not of this protocol."""


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> Refused | CannotConnect:
    """The error for an HTTP answer that is not an upgrade.

    A refusal's body is a JSON object with ``code`` and ``message`` (and ``retry_after_s``); the header
    Retry-After counts where the body has none. Any other status means that this is not the service's stream.
    """
    if status not in REFUSAL_STATUSES:
        fix = FIXES.get(status, "check host, port and path in --url, and that a proxy on the way passes WebSockets on")
        return CannotConnect(url, f"it answers HTTP {status} instead of opening a stream", fix)
    try:
        reason = json.loads(body)
    except ValueError:
        reason = None
    fields: Mapping[str, object] = reason if isinstance(reason, dict) else {}
    retry = fields.get("retry_after_s", headers.get("Retry-After"))
    try:
        retry_after_s = None if retry is None else float(str(retry))
    except ValueError:  # an HTTP date, which the service does not send
        retry_after_s = None
    return Refused(
        status, str(fields.get("code", "refused")), str(fields.get("message", "no reason given")), retry_after_s
    )
