"""Which address a request comes from: its connection's, or, behind trusted proxies, that of whom they heard."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from flask import Request

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HOPS = 32
IPV6_PREFIX = 64
"""Of an IPv6 address this much tells clients apart: the rest is for one household, or one machine, to choose."""


def parse_networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks, separated by commas. Raises ValueError, naming the one that is wrong."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part, strict=False))
        except ValueError:
            raise ValueError(f"{part!r} is no address and no network; write 10.0.0.7, 10.0.0.0/8 or fd00::/8") from None
    return tuple(found)


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> Address | None:
    """The client's address; None where the connection has none (a Unix socket).

    ``forwarded_for``: the header X-Forwarded-For, to which each proxy appends whom it heard. It is read from its end,
    as long as the one who wrote the entry is ``trusted``; whatever strangers wrote themselves is never reached.
    """
    address = _parse(peer)
    hops = forwarded_for.split(",")[-MAX_HOPS:]
    while address is not None and hops and any(address in network for network in trusted):
        before = _parse(hops.pop())
        if before is None:
            break
        address = before
    return address


def sender_of(request: Request, trusted: Sequence[Network]) -> Address | None:
    """The `client_address` of a request."""
    forwarded = ",".join(request.headers.getlist("X-Forwarded-For"))
    return client_address(request.remote_addr or "", forwarded, trusted)


def owner_name(address: Address) -> str:
    """What the streams of this address are counted under."""
    if address.version == 4:
        return f"address:{address}"
    return f"address:{ipaddress.ip_network((address, IPV6_PREFIX), strict=False).network_address}"


def _parse(text: str) -> Address | None:
    text = text.strip()
    if text.startswith("["):  # an IPv6 address, perhaps with a port
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:  # an IPv4 address with a port
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
