"""One client of a run: speaks at its pace, whatever becomes of its connection, and writes down what happens.

connect (a web process after the other, until admitted) -> start or resume -> speak and listen
   ^                                                                                   |
   +---- connection lost, shutting_down, unavailable, and the service gave a token ----+--> done, error, lost, hung
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ops.chaos.audio import SAMPLE_RATE, Clip
from ops.chaos.dialer import Dialer, NoWay
from ops.chaos.older import await_taken_over
from ops.chaos.records import Joined, Leave, Record, Seen, StreamPlan
from sessions import wire
from sessions.codes import NOT_THE_STREAMS

TICK_S = 0.1
ADMIT_S = 25.0
"""A client that is refused tries again for so long."""
RETURN_MARGIN_S = 3.0
"""A client tries to come back for this much longer than the service waits for it."""
SOON_S = 3.0
"""A connection that was left behind is listened to for so long after the end of the stream."""
LIFE_MARGIN_S = 75.0
"""A stream has ended this long after its last word, whatever happened."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all clients of a run share: the web processes' addresses, the run's clock (seconds), and after how long
    without a final a client that has said everything counts as forgotten."""

    urls: Sequence[str]
    now: Callable[[], float]
    answer_s: float


class Client:
    """A stream from its first connection to its end; `run` returns its record and raises nothing of the network's."""

    def __init__(self, plan: StreamPlan, clip: Clip, around: Surroundings) -> None:
        self.record = Record(plan, len(clip.pcm) // 2)
        self._plan = plan
        self._clip = clip
        self._around = around
        self._rng = random.Random(plan.seed)
        self._dialer = Dialer(around.urls, plan.web, self._rng, around.now, self.record.refusals)
        self._token: str | None = None
        self._resume_s = 0.0
        self._last_seq = 0
        self._end_said = False
        self._waits_since_s = 0.0
        self._stealing: ClientConnection | None = None
        self._stolen = False
        self._watchers: set[asyncio.Task[None]] = set()

    async def run(self) -> Record:
        """Live; returns the record."""
        record = self.record
        record.begun_s = self._around.now()
        try:
            async with asyncio.timeout(self._clip.seconds / self._plan.speed + LIFE_MARGIN_S):
                while not record.outcome:
                    connection = await self._connect()
                    if connection is not None:
                        await self._hold(connection)
        except TimeoutError:
            record.outcome = record.outcome or "hung"
            record.detail = record.detail or "did not end within its bound"
        finally:
            record.ended_s = self._around.now()
            for task in self._watchers:
                await asyncio.wait({task}, timeout=SOON_S)
                task.cancel()
        return record

    async def _connect(self) -> ClientConnection | None:
        """The next connection; None when there will be none: the record has the outcome."""
        record = self.record
        lost_s = record.lost_since_s
        since_s, patience_s = (
            (record.begun_s, ADMIT_S) if lost_s is None else (lost_s, self._resume_s + RETURN_MARGIN_S)
        )
        try:
            return await self._dialer.dial(since_s + patience_s)
        except NoWay as error:
            self._note_away()
            record.outcome = "lost" if record.joined else "refused"
            record.code, record.detail = error.code, str(error)
            return None

    def _note_away(self) -> None:
        record = self.record
        if record.lost_since_s is not None:
            record.away_s = max(record.away_s, self._around.now() - record.lost_since_s)

    # One connection.

    async def _hold(self, connection: ClientConnection) -> None:
        """Speak and listen on one connection until it ends; then it is closed."""
        record = self.record
        number = len(record.joined) + 1
        sender: asyncio.Task[None] | None = None
        try:
            await connection.send(wire.encode(self._first_message()))
            if not record.joined:
                record.speaks_since_s = self._around.now()
                sender = asyncio.create_task(self._speak(connection, 0))
            while not record.outcome:
                message = await self._next(connection)
                if isinstance(message, wire.Ready):
                    position = self._join(message, number)
                    if message.resumed and sender is None:
                        sender = asyncio.create_task(self._speak(connection, position))
                elif message is None or self._hear(message, number):
                    return
        except (ConnectionClosed, OSError) as error:
            self._lost(connection, error)
        finally:
            if sender is not None:
                sender.cancel()
                await asyncio.wait({sender})
            await self._part(connection)

    def _first_message(self) -> wire.Start | wire.Resume:
        if self._token is not None:
            return wire.Resume(session=self.record.session, token=self._token, last_seq=self._last_seq)
        return wire.Start(
            endpoint_ms=self._plan.variant.endpoint_ms,
            client_ref=self._plan.name,
            resume=True if self._plan.promises else None,
        )

    async def _next(self, connection: ClientConnection) -> object | None:
        """The next message that means something here; None when there is a new connection to go over to, or when
        the service forgot this client."""
        while True:
            if self._stealing is not None:
                return None
            if self._end_said and self._around.now() - self._waits_since_s > self._around.answer_s:
                self.record.outcome = "hung"
                self.record.detail = f"no final for {self._around.answer_s:g} s after everything was said"
                return None
            try:
                async with asyncio.timeout(TICK_S):
                    text = await connection.recv()
            except TimeoutError:
                continue
            try:
                return wire.decode_server(text)
            except wire.WireError:
                continue  # a newer service says more than the books look at

    def _join(self, message: wire.Ready, number: int) -> int:
        """The stream stands on this connection; returns the sample to go on with."""
        record = self.record
        self._note_away()
        record.lost_since_s = None
        position = round(message.received_s * SAMPLE_RATE)
        if record.session and message.session != record.session:
            record.odd.append(f"resumed {record.session} and got {message.session}")
        if message.resumed != (number > 1):
            record.odd.append(f"connection {number}: ready says resumed={message.resumed}")
        record.session, self._token, self._resume_s = message.session, message.token, message.resume_s
        record.joined.append(
            Joined(
                at_s=self._around.now(),
                connection=number,
                resumed=message.resumed,
                received=position,
                acknowledged=record.acknowledged,
                sent=record.sent,
                resumable=message.token is not None,
            )
        )
        self._waits_since_s = self._around.now()
        return position

    def _hear(self, message: object, number: int) -> bool:
        """Write a message down; True when the connection has served its purpose."""
        record, now = self.record, self._around.now()
        if isinstance(message, wire.Ack):
            record.acknowledged = max(record.acknowledged, round(message.received_s * SAMPLE_RATE))
            return False
        if not isinstance(message, wire.Partial | wire.Final | wire.Done | wire.Error):
            return False
        record.seen.append(Seen(now, number, message))
        match message:
            case wire.Partial() | wire.Final():
                self._last_seq = max(self._last_seq, message.seq)
                if isinstance(message, wire.Final):
                    self._waits_since_s = now
            case wire.Done():
                record.outcome = "done"
            case wire.Error(fatal=True):
                if message.code in NOT_THE_STREAMS and self._token is not None:
                    if record.lost_since_s is None:  # else it came back, and not in
                        record.lost_since_s = now
                    self._dialer.elsewhere()
                    return True
                record.outcome, record.code, record.detail = "error", message.code, message.message
        return bool(record.outcome)

    def _lost(self, connection: ClientConnection, error: Exception) -> None:
        record = self.record
        if record.outcome or self._stealing is not None:
            return
        if connection.close_code is not None and connection.close_code != 1006:
            record.close_code = connection.close_code
        if record.lost_since_s is None:
            record.lost_since_s = self._around.now()
        self._dialer.elsewhere()
        if not record.joined:  # the stream never began: a client simply tries again
            record.lost_since_s, record.sent = None, 0
        elif self._token is None:
            record.outcome = "lost"
            record.code, record.detail = "connection", f"{type(error).__name__}: {error}"

    async def _part(self, connection: ClientConnection) -> None:
        if self._stealing is not None:
            old, self._stealing = self._stealing, None
            self._watchers.add(asyncio.create_task(await_taken_over(old, self.record, self._around.now)))
            return
        with suppress(OSError, TimeoutError):
            await connection.close()
        if self.record.outcome in ("done", "error"):
            self.record.close_code = connection.close_code

    # Speaking.

    async def _speak(self, connection: ClientConnection, position: int) -> None:
        """Send what is there to be said from sample ``position`` on; ends with the connection, or after end."""
        plan, record = self._plan, self.record
        leave_at = plan.leave_at if plan.leave is not Leave.END else record.total + 1
        flushes = [at for at in plan.variant.flushes if at >= position]
        try:
            while True:
                there = min(self._spoken(), record.total, leave_at)
                while position < there or (flushes and flushes[0] == position):
                    if flushes and flushes[0] == position:
                        await connection.send(wire.encode(wire.Flush()))
                        flushes.pop(0)
                        continue
                    until = min(there, position + self._rng.randint(320, 4_800), *flushes[:1])
                    await connection.send(self._clip.pcm[2 * position : 2 * until])
                    position = until
                    record.sent = max(record.sent, position)
                if position >= leave_at:
                    await self._leave(connection)
                    return
                if plan.steals_at is not None and position >= plan.steals_at and not self._stolen and self._token:
                    self._stolen, self._stealing = True, connection
                    record.lost_since_s = self._around.now()
                    return
                if position >= record.total:
                    self._waits_since_s = self._around.now()
                    self._end_said = True
                    await connection.send(wire.encode(wire.End()))
                    return
                await asyncio.sleep(TICK_S)
        except (ConnectionClosed, OSError):
            return

    def _spoken(self) -> int:
        """Samples that somebody who speaks all the time has said by now."""
        return int((self._around.now() - self.record.speaks_since_s) * self._plan.speed * SAMPLE_RATE)

    async def _leave(self, connection: ClientConnection) -> None:
        self.record.outcome = "left"
        if self._plan.leave is Leave.CLOSE:
            with suppress(OSError, TimeoutError):
                await connection.close()
        else:
            connection.transport.abort()
