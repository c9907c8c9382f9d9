"""Whether a Redis is fit for this system: it never evicts, is new enough, takes writes, and is what the URL says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import redis
import structlog
from redis.exceptions import NoPermissionError, ResponseError

from queueing.errors import QueueUnavailable, UnsafeRedis
from queueing.redis_cluster import ClusterRedis
from queueing.redis_sentinel import SentinelRedis

OLDEST = (6, 2)

log = structlog.get_logger()


class Deployment(StrEnum):
    """How a Redis is run."""

    SINGLE = "one server"
    SENTINEL = "Sentinel"
    CLUSTER = "Cluster"


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One primary. Fields are empty where Redis does not say; ``persistence`` is ``none``, ``rdb``, ``aof`` or both."""

    name: str
    version: str
    policy: str
    persistence: str
    replicas: int
    full_coverage: str = ""
    """Of a Cluster's node: its ``cluster-require-full-coverage``."""


@dataclass(frozen=True, slots=True)
class RedisReport:
    """What `inspect_redis` found; ``unknown``: what could not be looked at, and why."""

    deployment: Deployment
    servers: tuple[ServerReport, ...]
    unknown: str = ""

    @property
    def version(self) -> str:
        """The oldest version among the primaries; ``unknown`` where none may be asked."""
        return min((server.version for server in self.servers), key=version_numbers, default="unknown")


def check_redis(client: redis.Redis) -> str:
    """Make sure that every primary answers, never evicts, is new enough and takes writes; returns the (oldest) version.

    Where an ACL forbids INFO there is nothing to go by: that is logged as a warning, and the version is ``unknown``.
    Raises `QueueUnavailable`, or `UnsafeRedis`, which says what helps.
    """
    report = inspect_redis(client)
    if report.unknown:
        log.warning("redis_not_checked", reason=report.unknown)
    return report.version


def inspect_redis(client: redis.Redis) -> RedisReport:
    """As `check_redis`, with everything that was found."""
    with _asked():
        if isinstance(client, ClusterRedis):
            return _inspect_cluster(client)
        deployment = Deployment.SENTINEL if isinstance(client, SentinelRedis) else Deployment.SINGLE
        try:
            return RedisReport(deployment, (_inspect(client, deployment, ""),))
        except NoPermissionError as error:
            client.ping()
            return RedisReport(deployment, (), f"this user may not run INFO ({error})")


def _inspect_cluster(client: ClusterRedis) -> RedisReport:
    try:
        if missing := client.map.uncovered():
            raise QueueUnavailable(f"the Redis Cluster is incomplete: {missing} of 16384 slots have no primary")
    except ResponseError as error:
        raise QueueUnavailable(f"Redis does not answer: {error}") from error
    try:
        servers = tuple(
            _inspect(client.node(address), Deployment.CLUSTER, str(address)) for address in client.map.primaries()
        )
        return RedisReport(Deployment.CLUSTER, servers)
    except NoPermissionError as error:
        return RedisReport(Deployment.CLUSTER, (), f"this user may not run INFO ({error})")


def _inspect(client: redis.Redis, deployment: Deployment, name: str) -> ServerReport:
    found: dict[str, Any] = client.info()
    report = ServerReport(
        name=name,
        version=str(found.get("redis_version", "unknown")),
        policy=str(found.get("maxmemory_policy", "noeviction")),
        persistence=_persistence(client, found),
        replicas=int(found.get("connected_slaves", 0)),
        full_coverage=_setting(client, "cluster-require-full-coverage") if deployment is Deployment.CLUSTER else "",
    )
    _refuse(report, found, deployment)
    return report


def _refuse(report: ServerReport, found: Mapping[str, Any], deployment: Deployment) -> None:
    who = f"Redis {report.name}".rstrip()
    if report.policy != "noeviction":
        raise UnsafeRedis(
            f"{who} has maxmemory-policy {report.policy!r}, under which it would drop leases and audio",
            "set it to 'noeviction' (redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf; where a "
            "provider forbids CONFIG: in its parameter group or settings page)",
        )
    if version_numbers(report.version) < OLDEST:
        raise UnsafeRedis(f"{who} has version {report.version}", "use Redis 6.2 or newer, or Valkey")
    if found.get("role", "master") != "master":
        if deployment is not Deployment.SINGLE:  # it was the primary when its address was asked for
            raise QueueUnavailable(f"{who} is being replaced as primary")
        raise UnsafeRedis(
            f"{who} is a replica of {found.get('master_host')}:{found.get('master_port')}: it takes no writes",
            "write the primary's address, or redis+sentinel://HOST:26379,HOST:26379/SERVICE/0 to have it found",
        )
    if deployment is not Deployment.CLUSTER and int(found.get("cluster_enabled", 0)):
        raise UnsafeRedis(
            f"{who} is a node of a Redis Cluster, which one address does not reach as a whole",
            "write redis+cluster://HOST:PORT,HOST:PORT",
        )


def _persistence(client: redis.Redis, found: Mapping[str, Any]) -> str:
    kinds = []
    if _setting(client, "save"):
        kinds.append("rdb")
    if int(found.get("aof_enabled", 0)):
        kinds.append("aof")
    return " and ".join(kinds) or "none"


def _setting(client: redis.Redis, name: str) -> str:
    """A setting's value; empty where CONFIG is forbidden, as managed services do."""
    try:
        return str(client.config_get(name).get(name, ""))
    except ResponseError:
        return ""


def version_numbers(version: str) -> tuple[int, ...]:
    """``7.0.15`` as numbers to compare by; what has none (``unknown``) counts as newest."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) or (10**6,)


@contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        if "cluster support disabled" in str(error):
            raise UnsafeRedis("this Redis is no Cluster", "write redis://HOST:PORT/0") from error
        raise QueueUnavailable(f"Redis does not answer: {error}") from error
