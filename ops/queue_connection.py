"""Which Redis the inspecting commands look at, and the errors they turn into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from ops.errors import Failed, Missing, WrongUse
from ops.run_file import find_running, run_file
from ops.runtime import Runtime
from ops.settings import UpSettings
from queueing.connect import connect, without_password
from queueing.errors import QueueError, QueueUnavailable, UnknownPolicy
from queueing.job_queue import JobQueue


@dataclass(frozen=True, slots=True)
class Target:
    """A queue in a Redis. ``where`` says how it was found, for errors; ``shown`` is the URL without its password."""

    client: redis.Redis
    queue: JobQueue
    name: str
    shown: str
    where: str

    def used(self) -> bool:
        """Whether any service has ever used this queue: looking must not be the first to install a policy."""
        return bool(self.client.exists(self.queue.keys.policy))


@contextmanager
def open_queue(runtime: Runtime) -> Iterator[Target]:
    """The queue that REDIS_URL names, else that of a running ``hearline up``, else of this machine's usual Redis.

    Raises `WrongUse` for wrong settings, `Missing` when Redis does not answer (now or within the block), `Failed`
    for what else the queue refuses.
    """
    settings = UpSettings.read(runtime.environment)
    path = run_file(runtime.environment)
    if runtime.environment.get("REDIS_URL"):
        url, where = settings.redis_url, "REDIS_URL names it"
    elif running := find_running(path):
        url, where = running.redis_url, f"`hearline up` (pid {running.pid}) runs with it"
    else:
        url, where = (
            settings.redis_url,
            f"the default, for REDIS_URL is not set and {path} names no running `hearline up`",
        )
    try:
        client = connect(url, max_connections=2, client_name="hearline-cli")
        queue = JobQueue.of(client, settings)
    except ValueError as error:
        raise WrongUse(f"REDIS_URL: {error}; write redis://HOST:PORT/0, rediss://... or unix://...") from error
    except UnknownPolicy as error:
        raise WrongUse(f"HEARLINE_POLICY: {error}") from error
    try:
        yield Target(client, queue, settings.queue, without_password(url), where)
    except (QueueUnavailable, redis.RedisError) as error:
        raise Missing(
            f"no answer from Redis at {without_password(url)} ({where}): {outage(error)}; "
            "start the service with `hearline up`, or set REDIS_URL"
        ) from error
    except UnknownPolicy as error:
        raise WrongUse(str(error)) from error
    except QueueError as error:
        raise Failed(str(error)) from error
    finally:
        client.close()


def outage(error: QueueUnavailable | redis.RedisError) -> str:
    """Why Redis does not answer, in the same words whichever layer noticed it."""
    return str(error).removeprefix("Redis does not answer: ").rstrip(".")
