"""One machine's service as a whole: Redis, the Procfile's processes, the file that others find it by.

Start order: Redis, then all processes; stop order: web (drains while workers still decode), the others, Redis.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ops import run_file
from ops.errors import Failed, Missing, OpsError, WrongUse
from ops.last_out import LastOut
from ops.last_words import last_words
from ops.output import Output
from ops.ports import LAST_PORT, holder, try_port
from ops.procfile import WORKER_METRICS_PORT, ProcessSpec, expand
from ops.readiness import ReadyWatch, local_url
from ops.redis_server import NoRedis, RedisServer
from ops.restarts import SETTINGS_STATUSES, RestartRules
from ops.supervisor import KILL_AFTER_S, GaveUp, Outcome, Ready, Supervisor, describe_status
from queueing.clock import Clock
from queueing.connect import check_redis, connect
from queueing.errors import QueueUnavailable, UnsafeRedis
from queueing.scratch import Scratch, scratch_folder

STOP_MARK = "stopping"
"""Name of the file, beside the metrics, that tells web processes that no other will take their place."""
REDIS_RETRY_S = 2.0
"""Seconds between two tries to bring an own Redis back."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``redis_url`` is None for an own Redis; ``data_dir`` keeps that one's data."""

    table: Mapping[str, str]
    counts: Mapping[str, int]
    folder: Path | None
    host: str
    port: int
    redis_url: str | None
    data_dir: Path | None
    drain_s: float

    @property
    def web_ports(self) -> list[int]:
        return [self.port + index for index in range(self.counts.get("web", 0))]

    @property
    def urls(self) -> list[str]:
        return [local_url(self.host, port) for port in self.web_ports]


def check_ports(host: str, ports: Sequence[int]) -> None:
    """Raise `OpsError` when one of the ports, counting up, cannot be listened on, saying who has it and what to do."""
    if ports and ports[-1] > LAST_PORT:
        raise WrongUse(
            f"{len(ports)} web processes from port {ports[0]} on would need ports up to {ports[-1]}, and the "
            f"last one is {LAST_PORT}; take a lower --port (or HEARLINE_PORT) or fewer web processes"
        )
    for port in ports:
        try:
            try_port(host, port)
        except socket.gaierror as error:
            raise WrongUse(f"{host!r} is no address of this machine: {error.strerror}") from error
        except PermissionError as error:
            raise Missing(f"port {port} needs more rights than this user has; take one above 1023") from error
        except OSError as error:
            held_by = f", held by {who}" if (who := holder(port)) else ""
            raise Missing(
                f"port {port} on {host} cannot be used ({error.strerror}){held_by}; "
                "stop what uses it, or take another: --port NUMBER (or HEARLINE_PORT)"
            ) from error


class Service:
    """Runs a `Plan` in the calling thread until it is stopped through `supervisor`."""

    def __init__(
        self,
        plan: Plan,
        environment: Mapping[str, str],
        *,
        output: Output,
        clock: Clock,
        rules: RestartRules | None = None,
    ) -> None:
        self._plan = plan
        self._output = output
        self._clock = clock
        self._redis: RedisServer | None = None
        self._last_out: LastOut | None = None
        self._other: run_file.RunRecord | None = None
        self._redis_is_down = False
        self._redis_retry_at_s = 0.0
        self._metrics_dir: str | None = None
        self.supervisor = Supervisor(
            output=output,
            environment=environment,
            clock=clock,
            drain_s=plan.drain_s,
            rules=rules,
            chore=self._look_after_redis,
            on_ended=self._forget_gauges,
            on_stop=self._mark_the_stop,
        )
        self._environment = environment

    def run(self) -> Outcome:
        """Start, wait for the end, clean up. Raises `OpsError` when something needed is missing or given up."""
        with ExitStack() as stack:
            check_ports(self._plan.host, self._plan.web_ports)
            redis_url = self._plan.redis_url or self._own_redis(stack)
            _check_redis(redis_url)
            scratch = stack.enter_context(scratch_folder("hearline-run-"))
            self._metrics_dir = scratch.path
            self._publish(redis_url, stack)
            self._watch(stack)
            outcome = self.supervisor.run(self._specs(redis_url, scratch))
        if outcome.gave_up is not None:
            raise _explain(outcome.gave_up)
        return outcome

    def _tell_of_another(self) -> None:
        """Only a service that stands is found: one that cannot start, or not yet, must not say that it is."""
        if (other := self._other) is not None:
            self._output.say(
                f"another `hearline up` runs already (pid {other.pid}, {other.url or 'no web process'}): while this "
                "one runs, `hearline queue` and `hearline stream` find this one (HEARLINE_STATE_DIR keeps them apart)"
            )

    def _own_redis(self, stack: ExitStack) -> str:
        if LastOut.possible():
            self._last_out = LastOut(self._plan.drain_s + KILL_AFTER_S)
            stack.callback(self._last_out.close)
        self._redis = RedisServer(data_dir=self._plan.data_dir, tethered=True, last_out=self._last_out)
        try:
            url = self._redis.start()
        except NoRedis as error:
            raise Missing(str(error)) from error
        stack.callback(self._redis.stop)
        kept = (
            f"data in {self._plan.data_dir}" if self._plan.data_dir else "data is gone at the end (--data DIR keeps it)"
        )
        self._output.say(f"Redis at {url}, {kept}")
        return url

    def _specs(self, redis_url: str, scratch: Scratch) -> list[ProcessSpec]:
        added = {
            "REDIS_URL": redis_url,
            "HEARLINE_HOST": self._plan.host,
            "PROMETHEUS_MULTIPROC_DIR": scratch.path,
            "HEARLINE_STOP_MARK": str(Path(scratch.path) / STOP_MARK),
            "PYTHONUNBUFFERED": "1",
        }
        if self._plan.folder is None:
            # The built-in table runs wherever the user is: a folder there named "api" is not ours.
            added["PYTHONSAFEPATH"] = "1"
        return expand(
            self._plan.table,
            self._plan.counts,
            environment=added,
            web_ports=self._plan.web_ports,
            folder=self._plan.folder,
            pass_fds=(scratch.descriptor, *(() if self._last_out is None else self._last_out.pass_fds)),
            worker_metrics_port=int(given) if (given := self._environment.get(WORKER_METRICS_PORT)) else None,
        )

    def _publish(self, redis_url: str, stack: ExitStack) -> None:
        path = run_file.run_file(self._environment)
        urls = self._plan.urls
        record = run_file.RunRecord(urls[0] if urls else None, redis_url, os.getpid(), self._clock.wall_ms())
        try:
            self._other = run_file.publish(path, record)
        except OSError as error:
            self._output.say(f"cannot write {path} ({error.strerror}); `hearline queue` needs REDIS_URL then")
            return
        stack.callback(run_file.withdraw, path, record, self._other)

    def _watch(self, stack: ExitStack) -> None:
        urls = self._plan.urls
        if not urls:
            self._output.say("no web process here: workers serve the queue of the Redis above")
            self._tell_of_another()
            return
        alone = not self._plan.counts.get("worker", 0)

        def ready(seconds: float) -> None:
            self.supervisor.post(Ready())
            state = "Hearline answers (its workers run elsewhere)" if alone else "Hearline is ready"
            self._output.say(
                f"{state} at {' '.join(urls)} after {seconds:.1f} s; Ctrl-C stops it", event="ready", urls=urls
            )
            self._tell_of_another()

        watch = ReadyWatch(
            urls,
            path="/health" if alone else "/ready",
            clock=self._clock,
            on_ready=ready,
            on_waiting=lambda reason: self._output.say(f"not ready yet: {reason}"),
        )
        stack.callback(watch.stop)
        watch.start()

    def _look_after_redis(self) -> None:
        """Bring an own Redis back when it ended by itself. Without --data what waited is lost, and clients are told."""
        if self._redis is None:
            return
        if (status := self._redis.ended()) is not None:
            self._redis_is_down = True
            self._output.say(f"Redis ended by itself ({describe_status(status)}); starting it again")
        now = self._clock.monotonic()
        if not self._redis_is_down or now < self._redis_retry_at_s:
            return
        self._redis_retry_at_s = now + REDIS_RETRY_S
        try:
            self._redis.start()
        except NoRedis as error:
            self._output.say(f"Redis does not come back, trying again: {error}")
        else:
            self._redis_is_down = False

    def _mark_the_stop(self) -> None:
        """With an own Redis that keeps nothing all streams end: nobody could come back to one."""
        if self._redis is None or self._plan.data_dir is not None or self._metrics_dir is None:
            return
        try:
            (Path(self._metrics_dir) / STOP_MARK).touch()
        except OSError as error:
            self._output.say(f"streams may end without their last words: {STOP_MARK} cannot be made ({error.strerror})")

    def _forget_gauges(self, pid: int) -> None:
        """A dead process's live gauges must not be counted on."""
        for file in Path(self._metrics_dir or os.devnull).glob(f"gauge_live*_{pid}.db"):
            file.unlink(missing_ok=True)


def _check_redis(url: str) -> None:
    try:
        client = connect(url, max_connections=1)
    except ValueError as error:
        raise WrongUse(f"REDIS_URL: {error}; write redis://HOST:PORT/0, rediss://... or unix://...") from error
    try:
        check_redis(client)
    except QueueUnavailable as error:
        raise Missing(f"{error}; start that Redis, or unset REDIS_URL so that `hearline up` brings its own") from error
    except UnsafeRedis as error:
        raise Missing(str(error)) from error
    finally:
        client.close()


def _explain(gave_up: GaveUp) -> OpsError:
    times = "at once" if gave_up.failures == 1 else f"{gave_up.failures} times in a row"
    lines = "".join(f"\n  {line}" for line in last_words(gave_up.tail)) or "\n  (nothing)"
    message = f"{gave_up.name} ended {times} ({describe_status(gave_up.status)}); its last lines were:{lines}"
    return WrongUse(message) if gave_up.status in SETTINGS_STATUSES else Failed(message)
