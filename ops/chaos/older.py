"""A connection that its client left behind for a newer one with the same stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ops.chaos.records import Record
from sessions import wire

TOLD_S = 20.0
"""Longer than any fault holds back the word that a newer connection has the stream."""
LOOK_S = 0.1


async def await_taken_over(old: ClientConnection, record: Record, now: Callable[[], float]) -> None:
    """Note what ``old`` is told; it must be told something within `TOLD_S` after a newer connection has the stream, if
    both stand. Until then the newer one may be refused or fail, and the stream is the older one's."""
    joined = len(record.joined)
    try:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    message = wire.decode_server(await old.recv())
            except TimeoutError:
                newer = record.joined[joined:]
                if newer and now() > newer[0].at_s + TOLD_S and not record.outcome:
                    record.odd.append("the older of two connections was not told that it was taken over")
                    return
                continue
            if isinstance(message, wire.Error) and message.fatal:
                # Nothing is said on it any more: should nobody let the newer one in for so long, it ends as idle.
                if record.joined[joined:] or message.code != "idle_timeout":
                    record.older_told.append(message.code)
                return
    except (ConnectionClosed, OSError, wire.WireError):
        pass
    finally:
        old.transport.abort()
