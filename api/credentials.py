"""Where a request may carry its API key: a header, the query, or the list of WebSocket subprotocols."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from werkzeug.datastructures import Headers, MultiDict

SCHEMES = ("bearer", "token")
"""Of the Authorization header in any case, and as subprotocols as they stand here. Any other scheme is no key of ours:
a proxy may use it for itself."""
QUERY = "api_key"


class Conflict(Exception):
    """The request carries keys that differ, so that it is not clear who it is from."""


def presented_key(headers: Headers, query: MultiDict[str, str]) -> str | None:
    """The key that the request carries, valid or not; None without any. Raises `Conflict`."""
    found = {*_authorized(headers), *query.getlist(QUERY)}
    if (pair := _scheme_and_key(offered_protocols(headers))) is not None:
        found.add(pair[1])
    if len(found) > 1:
        raise Conflict
    return next(iter(found), None)


def _authorized(headers: Headers) -> list[str]:
    keys = []
    for value in headers.getlist("Authorization"):
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() in SCHEMES:
            keys.append(key.strip())
    return keys


def offered_protocols(headers: Headers) -> list[str]:
    """The subprotocols of an upgrade request, in their order."""
    listed = ",".join(headers.getlist("Sec-WebSocket-Protocol"))
    return [name.strip() for name in listed.split(",") if name.strip()]


def answered_protocol(offered: Sequence[str]) -> str | None:
    """Of subprotocols like ``token, KEY`` the one to answer with: never the key; None where there is no such pair.

    A browser can send no headers with an upgrade, and a query stays in logs; so it offers its key as a subprotocol, and
    breaks off unless one of its offers comes back.
    """
    pair = _scheme_and_key(offered)
    return pair[0] if pair else None


def _scheme_and_key(offered: Sequence[str]) -> tuple[str, str] | None:
    return next(((scheme, key) for scheme, key in pairwise(offered) if scheme in SCHEMES), None)
