"""Composition root of one web process: everything is made and wired here, after gunicorn's fork."""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from flask import Flask, request
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from api.access import Access
from api.addresses import parse_networks
from api.admission import Admission
from api.app import create_app
from api.cleaner import Cleaner
from api.collectors import ProcessCollector, QueueCollector, QueueReader
from api.effects import Ports
from api.garbage import Collecting
from api.keys import KeyRing
from api.limiter import ClientLimits, Limiter
from api.memory import Trimming
from api.metrics import KeyMetrics, StreamMetrics
from api.overload import Overload, OverloadCollector
from api.pulse import Pulse, PulseSources
from api.queue_view import policy_name, queue_view, worker_views
from api.redis_watch import RedisWatch
from api.renewal import Renewal
from api.service import OpenStreams, StreamService, session_limits
from api.settings import ApiSettings
from api.taking_up import TakingUp
from api.turns import Turns
from queueing.clock import SystemClock
from queueing.connect import connect
from queueing.job_queue import JobQueue
from queueing.memory import memory_share
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.events import FrontListener
from sessions.owners import StreamOwners
from sessions.parking import Parking

REDIS_CONNECTIONS = 32
"""A stream needs one for about a millisecond a second; the subscriber keeps one."""
AUDIO_TTL_S = 3_600.0


def build(settings: ApiSettings, root_pid: int) -> Flask:
    """The running application; ``root_pid`` is gunicorn's parent process."""
    clock = SystemClock()
    client = connect(settings.redis_url, max_connections=REDIS_CONNECTIONS, client_name="hearline-web")
    queue = JobQueue.of(client, settings)
    grace_s = settings.resume_grace_s
    slots = StreamSlots(client, settings.queue, cap=settings.max_streams, grace_s=grace_s)
    parking = Parking(client, settings.queue, grace_s=grace_s)
    own = CollectorRegistry()
    metrics = StreamMetrics(own)
    streams = OpenStreams(metrics, Turns(clock, count_held_up=metrics.held_up.inc))
    front = f"web-{os.getpid()}-{secrets.token_hex(4)}"
    listener = FrontListener(
        client, front, rng=random.Random(), on_reconnect=streams.on_reconnect, on_taken=streams.on_taken
    )
    limiter = Limiter(StreamOwners(client, settings.queue), clock, client_limits(settings))
    buffer = AudioBuffer(client, AUDIO_TTL_S)
    overload = Overload(
        queue.backlog,
        lambda: memory_share(client, settings.redis_memory_limit),
        max_wait_s=settings.max_predicted_wait_s,
    )
    collecting, trimming = Collecting(), Trimming()

    def report() -> None:
        streams.report()
        collecting.beat(len(streams.sessions()))
        trimming.beat()

    pulse = Pulse(
        PulseSources(
            workers=lambda: worker_views(queue),
            policy=lambda: policy_name(queue),
            redis_time_ms=RedisWatch(client, queue).time_ms,
            refresh_slots=Renewal(slots, limiter, buffer, streams.sessions),
            live_sessions=streams.sessions,
            catch_up=lambda: cleaner.catch_up(),  # noqa: PLW0108 - made below, of the pulse
            report=report,
            measure=overload.look,
        ),
        clock,
        streams.on_workers,
    )
    cleaner = Cleaner(queue, buffer, slots, parking, metrics, lambda: pulse.known_redis_error, clock)
    stopping = threading.Event()
    ports = Ports(
        queue=queue,
        buffer=buffer,
        clock=clock,
        metrics=metrics,
        pulse=pulse,
        cleaner=cleaner,
        pause=stopping.wait,
        load=lambda: overload.load,
        pace=limiter.pace,
    )
    key_metrics = KeyMetrics(own)
    access = Access(
        KeyRing(settings.api_keys, clock, key_metrics),
        settings.allowed(),
        clock,
        key_metrics,
        metrics_open=settings.metrics_open,
        trusted=parse_networks(settings.trusted_proxies),
    )
    admission = Admission(
        slots,
        metrics,
        max_streams=settings.max_streams,
        process_streams=settings.process_streams,
        new_session=new_session_id,
        redis_error=lambda: pulse.known_redis_error,
        release_slot=lambda session, unheard: cleaner.release_slot(session, unheard=unheard),
        overload=overload.refusal,
        limit=lambda connection, principal, back: limiter.take(connection, principal, back=back),
        unlimit=lambda connection, keep: limiter.give_back(connection, keep=keep),
        identify=lambda: access.stream(request),
    )
    taking_up = TakingUp(
        client=client,
        queue=queue,
        buffer=buffer,
        slots=slots,
        parking=parking,
        limiter=limiter,
        cleaner=cleaner,
        metrics=metrics,
        clock=clock,
        listener=listener,
        front=front,
        limits=session_limits(settings),
    )
    service = StreamService(
        settings,
        ports,
        admission,
        streams,
        listener,
        front=front,
        stopping=stopping,
        take_up=taking_up,
        new_token=lambda: secrets.token_urlsafe(24),
        rng=random.Random(),
    )
    reader = QueueReader(lambda: queue_view(queue, slots), clock)
    collectors = (
        QueueCollector(
            reader, lambda: pulse.snapshot.workers_ready if pulse.snapshot else 0, lambda: pulse.redis_error
        ),
        OverloadCollector(overload),
        ProcessCollector(root_pid),
    )
    app = create_app(service, access, reader, scrape_registry(settings.metrics_dir, own, collectors))
    listener.start()
    pulse.start()
    return app


def client_limits(settings: ApiSettings) -> ClientLimits:
    """The limiter's share of the settings."""
    return ClientLimits(
        streams_per_address=settings.max_streams_per_address,
        tries_per_address=settings.max_tries_per_address,
        stream_rate=settings.max_stream_rate,
        trusted=parse_networks(settings.trusted_proxies),
    )


def new_session_id() -> str:
    """An id that is new to Redis, and can stand anywhere in a command line: no hyphen begins it."""
    return secrets.token_hex(8)


def scrape_registry(
    metrics_dir: str, own: CollectorRegistry, collectors: Sequence[Collector]
) -> Callable[[], CollectorRegistry]:
    """What /metrics collects: every process's values when they share ``metrics_dir``, else this process's own."""

    def registry() -> CollectorRegistry:
        scrape = CollectorRegistry()
        if metrics_dir:
            MultiProcessCollector(scrape, metrics_dir)  # type: ignore[no-untyped-call]
        else:
            scrape.register(own)
        for collector in collectors:
            scrape.register(collector)
        return scrape

    return registry


def forget_process(metrics_dir: str, pid: int) -> None:
    """A dead process's live gauges must not be counted on."""
    for file in Path(metrics_dir).glob(f"gauge_live*_{pid}.db"):
        file.unlink(missing_ok=True)


def clean_metrics(metrics_dir: str, alive: Callable[[int], bool]) -> None:
    """Tidy a folder that processes before us used: nothing of the dead stays when all are dead; while some live
    (workers share the folder), only the live gauges of the dead go, for counters never go back."""
    files = {
        file: int(pid) for file in Path(metrics_dir).glob("*_*.db") if (pid := file.stem.rpartition("_")[2]).isdigit()
    }
    dead = {file for file, pid in files.items() if not alive(pid)}
    nobody_lives = len(dead) == len(files)
    for file in dead:
        if nobody_lives or file.name.startswith("gauge_live"):
            file.unlink(missing_ok=True)
