"""Which web pages, and under which names of this server, may use it (pure).

A browser lets every page in the world open a WebSocket to any address that the person in front of it can reach, and
says only where the page comes from (``Origin``). So a stream is for pages of this server itself and for those listed.

"Itself" means the name in ``Host``, which an attacker's page can make its own: its name server first answers with the
page's machine, then with 127.0.0.1 (DNS rebinding). So where only this machine can connect, ``Host`` must be a name of
this machine as well, or one that is listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sessions.exposure import is_loopback_name

ANY = "*"
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Allowed:
    """The lists, as the settings have them. ``hosts`` empty: any name is right."""

    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    loopback_only: bool = True
    """Whether the server listens on addresses of this machine alone."""


def split_authority(text: str) -> tuple[str, int | None] | None:
    """Name (in lower case, an IPv6 address in its brackets) and port of ``name:port``; None for what is none."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    return found[1].lower().rstrip("."), int(found[2]) if found[2] else None


def host_allowed(name: str, allowed: Allowed) -> bool:
    """Whether requests may call this server ``name``."""
    if not allowed.hosts and not allowed.loopback_only:
        return True
    return is_loopback_name(name) or name in allowed.hosts or ANY in allowed.hosts


def origin_allowed(origin: str | None, host: str, allowed: Allowed) -> bool:
    """Whether a page of ``origin`` may open a stream at ``host`` (the Host header). None: not a browser's request."""
    if origin is None or ANY in allowed.origins or origin.lower() in allowed.origins:
        return True
    page = split_origin(origin)
    here = split_authority(host)
    if page is None or here is None:
        return False
    scheme, name, port = page
    return (name, port) == (here[0], here[1] or DEFAULT_PORTS[scheme])


def split_origin(origin: str) -> tuple[str, str, int] | None:
    """Scheme, name and port of ``https://name:port``; None for anything else, as ``null``."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    authority = split_authority(parts.netloc)
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https") or authority is None or f"{parts.scheme}://{parts.netloc}" != origin:
        return None
    return scheme, authority[0], authority[1] or DEFAULT_PORTS[scheme]


def parse_list(text: str) -> frozenset[str]:
    """The entries of a comma-separated setting, in lower case."""
    return frozenset(entry.strip().lower() for entry in text.split(",") if entry.strip())
