"""A front end's one subscriber: deliveries from its channel to the session they belong to."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import redis
import structlog
from redis.client import PubSub

from queueing.job import Delivery
from queueing.keys import front_channel
from queueing.scripts import guarded

POLL_S = 1.0
QUIET_POLLS = 5
"""Polls without any message until Redis is asked whether it is there; after twice as many it counts as gone."""

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0

TAKEN = b"taken "
"""How a message begins that says that another front end, or a newer connection to this one, has a session."""

log = structlog.get_logger()


def announce_taken(client: redis.Redis, front: str, session: str, epoch: int) -> None:
    """Tell ``front`` that the connection number ``epoch`` has the session now. Raises `QueueUnavailable`."""
    with guarded():
        client.publish(front_channel(front), f"{TAKEN.decode()}{session} {epoch}")


class FrontListener:
    """One thread that listens on the channel of ``front`` and survives Redis restarts.

    ``on_reconnect(sessions)`` is called from that thread each time the subscription stands again after a loss, with
    the ids registered then: what was published meanwhile is only in their durable events. Bounded: nothing is
    kept here, a delivery is handed on or dropped.
    """

    def __init__(
        self,
        client: redis.Redis,
        front: str,
        *,
        rng: random.Random,
        on_reconnect: Callable[[tuple[str, ...]], None] | None = None,
        on_taken: Callable[[str, int], None] | None = None,
    ) -> None:
        """``client``: its pool gives one connection to the subscription for good. ``rng``: jitter of the backoff.
        ``on_taken(session, epoch)``: see `announce_taken`; it must not block."""
        self._client = client
        self._channel = front_channel(front)
        self._rng = rng
        self._on_reconnect = on_reconnect
        self._on_taken = on_taken
        self._lock = threading.Lock()
        self._callbacks: dict[str, Callable[[Delivery], None]] = {}
        self._pubsub: PubSub | None = None
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._run, name=f"front-listener-{front}", daemon=True)

    def start(self) -> Self:
        """Start the thread; returns at once."""
        self._thread.start()
        return self

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the subscription stands; False when the time is up first."""
        return self._ready.wait(timeout_s)

    @property
    def connected(self) -> bool:
        """Whether the subscription stands at this moment."""
        return self._ready.is_set()

    def register(self, session: str, callback: Callable[[Delivery], None]) -> None:
        """Hand this session's deliveries to ``callback``, which must not block (it puts into a mailbox)."""
        with self._lock:
            self._callbacks[session] = callback

    def unregister(self, session: str, callback: Callable[[Delivery], None] | None = None) -> None:
        """No more calls for this session, but for one that may be on its way. Idempotent. ``callback``: only if it is
        still this one's turn."""
        with self._lock:
            if callback is None or self._callbacks.get(session) == callback:
                self._callbacks.pop(session, None)

    def close(self) -> None:
        """End the thread and give its connection back. Idempotent."""
        self._stop.set()
        with self._lock:  # a subscription that has ended would take a connection to ping
            if self._pubsub is not None:
                try:
                    self._pubsub.ping()  # the answer wakes the thread before its poll is over
                except (redis.RedisError, OSError):
                    log.debug("front_listener_already_disconnected")
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._keep_listening()
        finally:
            self._ready.clear()

    def _keep_listening(self) -> None:
        pause_s, told = FIRST_PAUSE_S, False
        while not self._stop.is_set():
            try:
                self._listen()
            except (redis.RedisError, OSError) as error:
                stood = self._ready.is_set()
                self._ready.clear()
                self._lost = True
                pause_s = FIRST_PAUSE_S if stood else min(2 * pause_s, LONGEST_PAUSE_S)
                tell = log.warning if stood or not told else log.debug  # once per loss, not per attempt
                tell("front_listener_lost", error=str(error), next_try_s=round(pause_s, 3))
                told = True
                self._stop.wait(pause_s * self._rng.uniform(0.5, 1.0))

    def _listen(self) -> None:
        pubsub = self._client.pubsub()  # type: ignore[no-untyped-call]
        try:
            pubsub.subscribe(self._channel)
            with self._lock:
                self._pubsub = pubsub
            quiet = 0
            while not self._stop.is_set():
                message = pubsub.get_message(timeout=POLL_S)
                quiet = 0 if message else quiet + 1
                if message:
                    self._handle(message)
                elif quiet == QUIET_POLLS:
                    pubsub.ping()
                elif quiet >= 2 * QUIET_POLLS:
                    raise redis.ConnectionError("no answer to a ping on the subscription")
        finally:
            with self._lock:
                self._pubsub = None
            pubsub.close()

    def _handle(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self._stands()
        elif message["type"] == "message" and bytes(message["data"]).startswith(TAKEN):
            session, _, epoch = bytes(message["data"])[len(TAKEN) :].decode("utf-8", "replace").partition(" ")
            if self._on_taken is not None and epoch.isdecimal():
                self._on_taken(session, int(epoch))
        elif message["type"] == "message":
            try:
                delivery = Delivery.from_wire(message["data"])
            except ValueError as error:
                log.error("front_listener_malformed", error=str(error))
                return
            with self._lock:
                callback = self._callbacks.get(delivery.session)
            if callback is not None:
                try:
                    callback(delivery)
                except Exception:  # one session's fault must not make all others deaf
                    log.exception("front_listener_callback_failed", session=delivery.session)

    def _stands(self) -> None:
        """Subscribed: from here on nothing published is missed, so this is the moment to look for what was."""
        with self._lock:
            sessions = tuple(self._callbacks)
        again, self._lost = self._lost, False
        self._ready.set()
        if again:
            log.info("front_listener_back", sessions=len(sessions))
            if self._on_reconnect is not None:
                self._on_reconnect(sessions)
