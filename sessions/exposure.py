"""Whether other machines can reach an address that a server listens on, and whether it may listen there."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable


def resolve(host: str) -> list[str]:
    """The numeric addresses of a host name or address. Raises OSError where there is none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [str(entry[4][0]) for entry in found]


def is_loopback_name(name: str) -> bool:
    """Whether a name or address means the machine itself to whoever uses it, without asking anybody (RFC 6761, 6.3)."""
    name = name.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return _is_loopback(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False


def listens_on_loopback(host: str, resolved: Callable[[str], Iterable[str]] = resolve) -> bool:
    """Whether nobody but this machine can reach a server on ``host``. Raises OSError for a name without address."""
    addresses = list(resolved(host))
    return bool(addresses) and all(_is_loopback(address) for address in addresses)


def exposure_problem(
    host: str,
    *,
    has_keys: bool,
    allow_anonymous: bool,
    given_as: str = "",
    resolved: Callable[[str], Iterable[str]] = resolve,
) -> str | None:
    """Why a server may not listen on ``host``, else None. ``given_as``: how it was said where not by the setting."""
    if has_keys or allow_anonymous:
        return None
    said = given_as or f"HEARLINE_HOST={host!r}"
    try:
        if listens_on_loopback(host, resolved):
            return None
    except OSError as error:
        return f"{said} is no address of this machine ({error.strerror or error}); use 127.0.0.1"
    return (
        f"{said} can be reached from other machines, and there are no API keys: whoever reaches it "
        "could use the service. Set HEARLINE_API_KEYS to a key file (`hearline keys add --label NAME --file FILE` "
        "makes one), or set HEARLINE_ALLOW_ANONYMOUS=1 where something else keeps strangers away, or listen on "
        "127.0.0.1"
    )


def _is_loopback(address: str) -> bool:
    number = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(number, "ipv4_mapped", None)
    return (mapped or number).is_loopback
