"""Connections to Redis, made with the limits this system needs: to one server, by way of Sentinels, to a Cluster.

| URL | what it names |
|---|---|
| `redis://[user:password@]host:port/db` | one server; `rediss://` with TLS |
| `unix://[user:password@]/path?db=0` | one server on this machine |
| `redis+sentinel://[user:password@]host:port,host:port/service/db` | the primary of `service`, as these Sentinels say |
| `redis+cluster://[user:password@]host:port,host:port` | a Cluster, found through any of these nodes |

`rediss+sentinel` and `rediss+cluster` use TLS, to the Sentinels too. User and password are those of the servers; the
Sentinels' own are ``?sentinel_username=`` and ``?sentinel_password=``. Other options after ``?`` are redis-py's
(``ssl_ca_certs=/path``, ...).
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from queueing.lean import LeanRedis
from queueing.redis_check import check_redis
from queueing.redis_cluster import ClusterRedis
from queueing.redis_sentinel import PrimaryFinder, SentinelRedis, greet_primary
from queueing.slot_map import Address

__all__ = ["SOCKET_TIMEOUT_S", "WAIT_LIMIT_S", "check_redis", "connect", "without_password"]

WAIT_LIMIT_S = 5.0
"""Longest blocking wait of a client; its socket timeout is longer, or redis-py would re-send the wait."""

SOCKET_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0

ASK_TIMEOUT_S = 1.0
"""A Sentinel, or a node that is asked for the map of slots, answers within this time, or the next one is asked."""

SENTINEL_PORT = 26_379
REDIS_PORT = 6_379


def connect(url: str, *, max_connections: int = 16, client_name: str = "hearline") -> redis.Redis:
    """A client over a bounded, blocking pool (one for each node of a Cluster); no silent retries (a repeated claim must
    carry its nonce).

    No I/O happens here. Raises ValueError for a malformed URL.
    """
    pool_options: dict[str, Any] = {
        "max_connections": max_connections,
        "timeout": SOCKET_TIMEOUT_S,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": 30,
        "client_name": client_name,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    scheme, plus, kind = _split(url).scheme.partition("+")
    if not plus:
        return LeanRedis(redis.BlockingConnectionPool.from_url(url, **pool_options))
    if scheme not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
        raise ValueError(f"no scheme {scheme}+{kind}://; use redis+sentinel:// or redis+cluster:// (rediss+: with TLS)")
    return (_sentinel if kind == "sentinel" else _cluster)(url, scheme, pool_options)


def without_password(url: str) -> str:
    """The URL as it may be shown; nothing of one that cannot be taken apart."""
    try:
        parts = _split(url)
    except ValueError:
        return "(malformed)"
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    query = [(name, "***" if "password" in name else value) for name, value in parse_qsl(parts.query)]
    return urlunsplit(
        parts._replace(netloc=f"{user}{colon}{'***' if colon else ''}{at}{hosts}", query=urlencode(query, safe="*/"))
    )


_URL = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?")
"""RFC 3986, appendix B."""


def _split(url: str) -> SplitResult:
    """As `urlsplit`, which since CVE-2025-0938 takes no netloc that has an IPv6 address behind anything else."""
    found = _URL.match(url)
    scheme, netloc, path, query = (part or "" for part in found.groups()) if found else ("", "", "", "")
    if netloc.count("[") != netloc.count("]"):
        raise ValueError("a bracket that is open or closed alone; write redis://[ADDRESS]:PORT/0")
    return SplitResult(scheme.lower(), netloc, path, query, "")


def _sentinel(url: str, scheme: str, pool_options: dict[str, Any]) -> redis.Redis:
    addresses, path, options = _parsed(url, scheme, SENTINEL_PORT)
    service, _, db = path.partition("/")
    if not service:
        raise ValueError("the service's name is missing: redis+sentinel://HOST:26379,HOST:26379/SERVICE/DB")
    if not (db or "0").isdecimal():
        raise ValueError(f"{db!r} is no number of a database: redis+sentinel://HOST:26379,HOST:26379/SERVICE/DB")
    login = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    tls = options.pop("connection_class", None) is SSLConnection
    ssl = {name: value for name, value in options.items() if name.startswith("ssl_")}
    finder = PrimaryFinder(
        [_asker(address, {**login, **ssl}, pool_options, tls) for address in addresses],
        service,
    )
    pool = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        connection_class=SentinelManagedSSLConnection if tls else SentinelManagedConnection,
        connection_pool=finder,
        redis_connect_func=greet_primary,
        db=int(db or 0),
        **options,
        **pool_options,
    )
    finder.serve(pool)
    return SentinelRedis(pool, finder)


def _cluster(url: str, scheme: str, pool_options: dict[str, Any]) -> redis.Redis:
    addresses, path, options = _parsed(url, scheme, REDIS_PORT)
    if path not in ("", "0"):
        raise ValueError(f"a Cluster has database 0 only, not {path!r}: redis+cluster://HOST:6379,HOST:6379")
    tls = options.pop("connection_class", None) is SSLConnection

    def open_node(address: Address) -> redis.Redis:
        pool = redis.BlockingConnectionPool(**_at(address, tls), **options, **pool_options)  # type: ignore[no-untyped-call]
        return LeanRedis(pool)

    return ClusterRedis(addresses, open_node, lambda address: _asker(address, options, pool_options, tls))


def _asker(address: Address, options: dict[str, Any], pool_options: dict[str, Any], tls: bool) -> redis.Redis:
    timeouts = {"timeout": ASK_TIMEOUT_S, "socket_timeout": ASK_TIMEOUT_S, "socket_connect_timeout": ASK_TIMEOUT_S}
    limits = {**pool_options, **timeouts}
    pool = redis.BlockingConnectionPool(**_at(address, tls), **options, **limits)  # type: ignore[no-untyped-call]
    return redis.Redis.from_pool(pool)


def _at(address: Address, tls: bool) -> dict[str, Any]:
    return {"host": address.host, "port": address.port, **({"connection_class": SSLConnection} if tls else {})}


def _parsed(url: str, scheme: str, port: int) -> tuple[list[Address], str, dict[str, Any]]:
    """Where to ask, the path without its slashes, and redis-py's options but for host, port and database."""
    parts = _split(url)
    login, at, hosts = parts.netloc.rpartition("@")
    addresses = [_address(host, port) for host in hosts.split(",") if host]
    if not addresses:
        raise ValueError("no host in it; write HOST:PORT,HOST:PORT after ://")
    user, colon, password = login.partition(":")
    login = f"{quote(unquote(user), safe='')}{colon}{quote(unquote(password), safe='')}{at}"
    options: dict[str, Any] = parse_url(f"{scheme}://{login}host:1/?{parts.query}")  # type: ignore[no-untyped-call]
    for name in ("host", "port", "db"):
        options.pop(name, None)
    return addresses, unquote(parts.path).strip("/"), options


def _address(text: str, default_port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return Address(parts.hostname, parts.port or default_port)  # parts.port raises ValueError for what is no port
