"""Getting a connection: one web process after the other, with a jittered pause, until admitted or out of patience."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
PING_S, PONG_S = 2.0, 8.0
"""A client finds out by itself that its connection is dead. A stream that waits for Redis answers no pings then."""


class NoWay(Exception):
    """Nobody took this client in time; ``code`` of the latest refusal, or ``unreachable``."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code


class Dialer:
    """``urls`` of the web processes; ``refusals`` takes the code of each refusal before the upgrade."""

    def __init__(
        self, urls: Sequence[str], first: int, rng: random.Random, now: Callable[[], float], refusals: list[str]
    ) -> None:
        self._urls = urls
        self._at = first
        self._rng = rng
        self._now = now
        self._refusals = refusals

    def elsewhere(self) -> None:
        """Try another web process next."""
        self._at += 1

    async def dial(self, until_s: float) -> ClientConnection:
        """An open WebSocket. Raises `NoWay` after ``until_s``."""
        pause_s = FIRST_PAUSE_S
        while True:
            code = "unreachable"
            try:
                return await connect(
                    self._urls[self._at % len(self._urls)],
                    compression=None,
                    proxy=None,
                    max_size=2**22,
                    open_timeout=4.0,
                    close_timeout=1.5,
                    ping_interval=PING_S,
                    ping_timeout=PONG_S,
                )
            except InvalidStatus as refused:
                code = _code_of(refused)
                self._refusals.append(code)
                problem = str(refused)
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, EOFError) as error:
                problem = f"{type(error).__name__}: {error}"
            self.elsewhere()
            if self._now() > until_s:
                raise NoWay(code, problem)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))


def _code_of(refused: InvalidStatus) -> str:
    """``overloaded`` from the JSON body of a refusal, else ``http_503``."""
    try:
        return str(json.loads(refused.response.body or b"")["code"])
    except (ValueError, KeyError, TypeError):
        return f"http_{refused.response.status_code}"
