"""When a connection that was left behind counts as forgotten by the service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from ops.chaos.older import TOLD_S, await_taken_over
from ops.chaos.records import Joined, Record, StreamPlan, Variant
from sessions.wire import Error, encode


class Silent:
    """A connection that says nothing after ``messages``."""

    def __init__(self, *messages: str) -> None:
        self._messages = list(messages)
        self.aborted = False
        self.transport = self

    async def recv(self) -> str:
        if self._messages:
            await asyncio.sleep(0)  # after what else happens at the same moment
            await asyncio.sleep(0)
            return self._messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")

    def abort(self) -> None:
        self.aborted = True


def listen(old: Silent, times_s: Sequence[float], *, newer_at_s: float | None = None) -> Record:
    """Listen to ``old`` at these times, while a newer connection gets the stream at ``newer_at_s``."""
    record = Record(StreamPlan("s", 0.0, Variant("turns"), 0), total=1)
    times = iter(times_s)

    async def scenario() -> None:
        watching = asyncio.create_task(await_taken_over(cast("Any", old), record, lambda: next(times, times_s[-1])))
        await asyncio.sleep(0)
        if newer_at_s is not None:
            record.joined.append(
                Joined(newer_at_s, 2, resumed=True, received=0, acknowledged=0, sent=0, resumable=True)
            )
        await asyncio.wait({watching}, timeout=0.5)
        watching.cancel()
        await asyncio.wait({watching})

    asyncio.run(scenario())
    assert old.aborted
    return record


FORGOTTEN = ["the older of two connections was not told that it was taken over"]


def test_who_is_not_told_that_a_newer_connection_has_the_stream_was_forgotten() -> None:
    assert listen(Silent(), [5.0 + TOLD_S, 5.1 + TOLD_S], newer_at_s=5.0).odd == FORGOTTEN
    assert listen(Silent(), [5.0, 4.9 + TOLD_S], newer_at_s=5.0).odd == [], "there is time yet"


def test_until_a_newer_connection_has_the_stream_nobody_is_taken_over() -> None:
    assert listen(Silent(), [1_000.0]).odd == []


def test_what_it_was_told_is_noted() -> None:
    told = encode(Error(code="taken_over", message="no", fatal=True))
    assert listen(Silent(told), [1.0], newer_at_s=0.5).older_told == ["taken_over"]


def test_it_may_end_as_idle_while_no_newer_one_is_let_in() -> None:
    idle = encode(Error(code="idle_timeout", message="no", fatal=True))
    assert listen(Silent(idle), [1.0]).older_told == []
    assert listen(Silent(idle), [1.0], newer_at_s=0.5).older_told == ["idle_timeout"], "it was not its stream then"
