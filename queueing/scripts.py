"""The queue's Lua scripts: loaded from ``lua/``, called by digest, sent again when Redis has forgotten them.

A script is one verb. ``-- @include a b`` in it stands for the files ``lua/lib/a.lua`` and ``b.lua``; Redis 6.2
has no libraries, so they are put in place here. Another package's scripts (`sessions.scripts`) are loaded and called
alike, and find what their own ``lib`` lacks in this one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from queueing.errors import QueueUnavailable, RedisFull
from queueing.keys import QueueKeys
from queueing.verbs import Verb

LUA = Path(__file__).with_name("lua")
_INCLUDE = re.compile(r"^-- @include (.+)\n", re.MULTILINE)

_OUTAGES = (AskError, ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
"""What redis-py makes of some of the codes below, leaving the code out of the text; MOVED is an AskError."""

_OUTAGE = re.compile(r"\b(OOM|READONLY|MISCONF|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|BUSY|UNBLOCKED)\b")
"""Error codes of a Redis that is there but takes no writes now. From within a script they arrive inside another
error's text. A script that meets one has written nothing yet: Redis checks before a script's first write only."""

_SCRIPT = re.compile(
    r"Error running script \(call to \w+\): (?:@user_script: ?\d+: )*-?|,? script: \w+, on @user_script:\d+\.?"
)
"""What Redis up to 6.2 writes before, and later ones after, the message of a command within a script."""

Reply = list[Any]
"""What a script returns: first a code, then what its header says."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, includes in place, and the SHA-1 digest by which Redis knows it."""

    name: str
    source: str
    sha: str


@cache
def load_script(name: str, folder: Path = LUA) -> Script:
    """The script ``FOLDER/NAME.lua``; raises FileNotFoundError for one that is not there."""

    def included(match: re.Match[str]) -> str:
        return "".join(part(name) for name in match[1].split())

    def part(name: str) -> str:
        own = folder / "lib" / f"{name}.lua"
        return (own if own.exists() else LUA / "lib" / own.name).read_text(encoding="utf-8")

    source = _INCLUDE.sub(included, (folder / f"{name}.lua").read_text(encoding="utf-8"))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def call_script(call: Callable[..., Any], script: Script, tail: Sequence[Any]) -> Any:
    """Run a script by its digest, or by its text where Redis does not know it.

    ``call``: a client's `execute_command`; ``tail``: the number of keys, the keys, the arguments. Raises
    `QueueUnavailable` when Redis cannot be reached or take writes.
    """
    with guarded():
        try:
            return call("EVALSHA", script.sha, *tail)
        except NoScriptError:
            return call("EVAL", script.source, *tail)


class Scripts:
    """Runs verbs on one queue: one round trip each, one more only where Redis does not know the script (yet)."""

    def __init__(self, client: redis.Redis, keys: QueueKeys) -> None:
        self._client = client
        self._call: Callable[..., Any] = client.execute_command
        self._keys = keys
        self._names: dict[str, list[str]] = {}

    def run(self, verb: Verb) -> Reply:
        """Run the verb's script; raises `QueueUnavailable` when Redis cannot be reached or take writes."""
        return _listed(call_script(self._call, *self._prepared(verb)))

    def run_all(self, verbs: Sequence[Verb]) -> list[Reply]:
        """Run several in one round trip, each by itself whole or not at all; their replies in order.

        Raises as `run` does; by then any of them may have happened, so only verbs that can be repeated belong here.
        """
        if len(verbs) == 1:
            return [self.run(verbs[0])]
        with guarded(), self._client.pipeline(transaction=False) as pipeline:
            for verb in verbs:
                script, tail = self._prepared(verb)
                pipeline.execute_command("EVALSHA", script.sha, *tail)  # type: ignore[no-untyped-call]
            replies = pipeline.execute(raise_on_error=False)
        answers = []
        for verb, reply in zip(verbs, replies, strict=True):
            if isinstance(reply, NoScriptError):
                answers.append(self.run(verb))
                continue
            with guarded():
                if isinstance(reply, Exception):
                    raise reply
            answers.append(_listed(reply))
        return answers

    def _prepared(self, verb: Verb) -> tuple[Script, tuple[Any, ...]]:
        """The verb's script, and what follows it in the command: the number of keys, the keys, the arguments."""
        keys = self._names.get(verb.SCRIPT)
        if keys is None:
            keys = self._names[verb.SCRIPT] = [str(getattr(self._keys, name)) for name in verb.KEYS]
        return load_script(verb.SCRIPT), (len(keys), *keys, *verb.arguments())


def _listed(reply: Any) -> Reply:
    return reply if isinstance(reply, list) else [reply]


def _reason(error: ResponseError) -> str:
    """What the server said, without our script's digest; of redirections redis-py keeps only where to."""
    said = _SCRIPT.sub("", str(error))
    return f"the slot of these keys is being moved ({said})" if isinstance(error, AskError) else said


@contextmanager
def guarded() -> Iterator[None]:
    """Turn an outage of Redis (gone, slow, read-only) into `QueueUnavailable`, out of memory into `RedisFull`.

    At its memory limit Redis refuses, within a script, commands that may take memory, but only until the script's first
    write. So scripts that free memory or finish jobs begin with a write that takes none, and always work.

    Any other error reply is a fault of ours and passes as it is.
    """
    try:
        yield
    except ResponseError as error:
        found = _OUTAGE.search(str(error))
        if not found and not isinstance(error, _OUTAGES):
            raise
        if isinstance(error, OutOfMemoryError) or (found and found[1] == "OOM"):
            raise RedisFull(f"Redis is at its memory limit: {_reason(error)}") from error
        raise QueueUnavailable(f"Redis cannot serve now: {_reason(error)}") from error
    except redis.RedisError as error:
        raise QueueUnavailable(f"Redis does not answer: {error}") from error
