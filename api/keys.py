"""Who a request comes from: the key file, read again when it changes."""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import structlog

from api.metrics import KeyMetrics
from queueing.clock import Clock
from sessions.api_keys import BadKeyFile, KeyRecord, digest, is_key, read_keys, utc_day

LOOK_EVERY_S = 1.0
REMIND_EVERY_S = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of all streams of one principal together; None: the server's own setting."""

    max_streams: int | None = None
    max_audio_rate: float | None = None
    """Seconds of audio a second."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who uses the service. ``label`` is safe in logs and metrics; empty for anybody, where there are no keys."""

    label: str = ""
    limits: Limits = Limits()


ANYBODY = Principal()


@dataclass(frozen=True, slots=True)
class Expired:
    """The key was valid until the end of ``day``."""

    day: date


class KeyRing:
    """The keys of ``path``; None: there are none, and everybody is `ANYBODY`. Thread-safe.

    A changed file counts within `LOOK_EVERY_S` of the next look-up. One that cannot be used changes nothing: the keys
    that were valid stay so, and log and metrics say it until the file is right.
    """

    def __init__(self, path: Path | None, clock: Clock, metrics: KeyMetrics) -> None:
        """Raises `BadKeyFile`: nothing shall start with keys that nobody can know."""
        self._path = path
        self._clock = clock
        self._metrics = metrics
        self._looking = threading.Lock()
        self._look_at_s = clock.monotonic() + LOOK_EVERY_S
        self._remind_at_s = 0.0
        self._seen: object = None
        self._by_digest: dict[str, KeyRecord] = {}
        if path is not None:
            self._seen = _signature(path)
            self._install(read_keys(path))

    @property
    def required(self) -> bool:
        """Whether a request must have a key."""
        return self._path is not None

    def find(self, key: str) -> Principal | Expired | None:
        """Whose key this is; None when it is nobody's."""
        self._look()
        if not is_key(key):
            return None
        # That the time of a look-up depends on the digest tells nobody anything: who could choose digests would have
        # inverted SHA-256. The comparison is constant-time all the same.
        wanted = digest(key)
        record = self._by_digest.get(wanted)
        if record is None or not hmac.compare_digest(record.sha256, wanted):
            return None
        if record.expires is not None and record.expired(utc_day(self._clock.wall_ms())):
            return Expired(record.expires)
        return Principal(record.label, Limits(record.max_streams, record.max_audio_rate))

    def _look(self) -> None:
        """Read the file if it has changed; one thread does, the others go on with what is known."""
        if self._path is None or self._clock.monotonic() < self._look_at_s or not self._looking.acquire(blocking=False):
            return
        try:
            now_s = self._clock.monotonic()
            self._look_at_s = now_s + LOOK_EVERY_S
            signature = _signature(self._path)
            if signature == self._seen:
                return
            try:
                records = read_keys(self._path)
            except BadKeyFile as error:
                self._metrics.broken.set(1)
                if now_s >= self._remind_at_s:
                    self._remind_at_s = now_s + REMIND_EVERY_S
                    self._metrics.failures.inc()
                    log.error("api_keys_not_read", problem=str(error), still_valid=len(self._by_digest))
                return
            self._seen = signature
            self._install(records)
            log.info("api_keys_read", keys=len(records))
        finally:
            self._looking.release()

    def _install(self, records: tuple[KeyRecord, ...]) -> None:
        self._by_digest = {record.sha256: record for record in records}
        self._remind_at_s = 0.0
        self._metrics.keys.set(len(records))
        self._metrics.broken.set(0)


def _signature(path: Path) -> object:
    """Changes whenever the file does; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
