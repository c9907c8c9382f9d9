"""Clients that vanish at any moment, clients that mean harm: nothing of them stays, nobody else notices."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.wire import Done, End, Final, Flush, Start, encode
from tests.support.eventually import eventually
from tests.support.frames import BINARY, CLOSE, CONTINUATION, PING, TEXT, RawClient, frame, upgrade_request
from tests.support.live_api import LiveApi, leftovers, receive_all
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech

ROUNDS = 50


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(
        redis_server.url,
        partial_interval_s=0.2,
        min_partial_audio_s=0.2,
        send_timeout_s=1,
        idle_timeout_s=10,
        http_timeout_s=2,
        ping_interval_s=1,
        resume_grace_s=0,
        http_threads=8,
    ) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The web process; afterwards no stream, slot, job, key, descriptor or thread may be left."""
    eventually(lambda: server.metric("hearline_stream_slots") == 0, what="the view of an empty Redis")
    mailboxes = server.mailboxes()
    yield server
    assert_clean(server, redis_client)
    eventually(lambda: not server.client_sockets(), what="closed client sockets")
    eventually(lambda: server.mailboxes() == mailboxes, what="closed mailboxes")
    assert server.metric("hearline_stream_faults_total") == 0
    assert not [line for line in server.log if "Traceback" in line]


def assert_clean(server: LiveApi, client: redis.Redis) -> None:
    eventually(lambda: server.metric("hearline_streams_active") == 0, what="no active stream")
    eventually(lambda: not leftovers(client), timeout_s=20, what="clean Redis")


@pytest.fixture
def worker(api: LiveApi, redis_client: redis.Redis) -> Iterator[QueueWorker]:
    with QueueWorker(redis_client) as worker:
        eventually(lambda: api.ready, what="readiness")
        yield worker


@contextmanager
def raw(api: LiveApi, *, upgraded: bool = True) -> Iterator[RawClient]:
    with socket.create_connection(("127.0.0.1", api.port)) as sock:
        client = RawClient(sock)
        if upgraded:
            client.send(upgrade_request())
            assert client.read_head().startswith("HTTP/1.1 101")
        yield client


def vanish(client: RawClient) -> None:
    """Reset the connection: no close frame, no FIN."""
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


def read_message(client: RawClient) -> str:
    opcode, payload = client.read_frame()
    assert opcode in (TEXT, PING)
    return payload.decode()


SOUND = speech(1.0)


def before_the_request_is_whole(client: RawClient) -> None:
    client.send(upgrade_request()[:-7])


def after_the_upgrade(client: RawClient) -> None:
    client.send(upgrade_request())


def in_mid_frame(client: RawClient) -> None:
    client.send(upgrade_request())
    client.read_head()
    client.send(frame(BINARY, SOUND)[:5_000])


def with_a_partial_asked_for(client: RawClient) -> None:
    client.send(upgrade_request())
    client.read_head()
    client.send(frame(BINARY, SOUND))
    assert "ready" in read_message(client)


def between_end_and_final(client: RawClient) -> None:
    with_a_partial_asked_for(client)
    client.send(frame(TEXT, encode(End()).encode()))


def after_the_final(client: RawClient) -> None:
    client.send(upgrade_request())
    client.read_head()
    client.send(frame(TEXT, encode(Start(partials=False)).encode()) + frame(BINARY, SOUND))
    client.send(frame(TEXT, encode(Flush()).encode()))
    while "final" not in read_message(client):
        pass


STAGES = [
    before_the_request_is_whole,
    after_the_upgrade,
    in_mid_frame,
    with_a_partial_asked_for,
    between_end_and_final,
    after_the_final,
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize("ending", [vanish, RawClient.close], ids=["reset", "close"])
def test_vanishing_again_and_again_leaves_nothing(
    api: LiveApi, worker: QueueWorker, stage: Callable[[RawClient], None], ending: Callable[[RawClient], None]
) -> None:
    for _ in range(ROUNDS // 2):
        with raw(api, upgraded=False) as client:
            stage(client)
            ending(client)
    # A connection is closed when its thread has returned, so no thread is left behind either.
    eventually(lambda: not api.client_sockets(), timeout_s=20, what="closed connections")
    assert worker.claimed or stage is not between_end_and_final


def test_a_queued_partial_and_a_held_final_go_with_their_stream(api: LiveApi, redis_client: redis.Redis) -> None:
    with QueueWorker(redis_client, hold=frozenset({Kind.FINAL, Kind.PARTIAL})) as worker:
        with raw(api) as held:
            held.send(frame(BINARY, SOUND) + frame(TEXT, encode(Flush()).encode()))
            eventually(lambda: Kind.FINAL in worker.claimed_kinds() or worker.claimed, what="a decode")
            with raw(api) as queued:
                queued.send(frame(BINARY, SOUND))
                eventually(lambda: redis_client.hlen("hl:{q:main}:open-partial") >= 1, what="a queued partial")
                vanish(queued)
            vanish(held)
        eventually(lambda: redis_client.zcard("hl:{q:main}:streams") == 0, what="free slots")
        eventually(lambda: redis_client.hlen("hl:{q:main}:open-partial") == 0, what="no partial left")
        worker.let_go()
        assert_clean(api, redis_client)


def test_a_client_that_never_reads_is_closed_and_counted(api: LiveApi, worker: QueueWorker) -> None:
    worker.text = lambda _data: "x" * 50_000
    before = api.metric("hearline_send_timeouts_total")
    with raw(api) as client:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for _ in range(20):
            client.send(frame(BINARY, SOUND[:3_200]) + frame(TEXT, b'{"type":"flush"}'))
        eventually(lambda: api.metric("hearline_send_timeouts_total") == before + 1, what="the send timeout")
        eventually(
            lambda: "slow_client" in [each["outcome"] for each in api.events("stream_summary")], what="the summary"
        )


HOSTILE = {
    "garbage": (os.urandom(4_096), 1002),
    "unmasked": (b"\x82\x04data", 1002),
    "deflated": (frame(BINARY, b"x" * 100, rsv1=True), 1002),
    "announces 2^62 bytes": (frame(BINARY, b"x" * 2_000_000, length=1 << 62), 1009),
    "not UTF-8": (frame(TEXT, b"\xc3\x28"), 1007),
    "ping flood": (frame(PING, b"x") * 1_000, 1008),
    "empty fragments": (frame(BINARY, fin=False) + frame(CONTINUATION, fin=False) * 5_000, 1008),
    "fragments without end": (frame(BINARY, fin=False) + frame(CONTINUATION, b"x" * 10_000, fin=False) * 200, 1009),
}


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_websocket_is_closed_with_its_reason(api: LiveApi, name: str) -> None:
    data, code = HOSTILE[name]
    with api.connect() as neighbour:
        neighbour.send(SOUND)
        with raw(api) as client:
            sending = threading.Thread(target=lambda: _send(client, data))
            sending.start()
            closed = client.read_close()
            client.sock.shutdown(socket.SHUT_WR)
            sending.join(10)
            assert closed == code or name == "garbage"
            assert client.at_end()
        neighbour.send(encode(End()))
        assert isinstance(receive_all(neighbour)[-1], Done)


def _send(client: RawClient, data: bytes) -> None:
    with suppress(OSError):
        client.send(data)


@pytest.mark.usefixtures("worker")
def test_a_peer_that_is_silent_for_two_pings_is_given_up(api: LiveApi) -> None:
    before = api.metric("hearline_dead_peers_total")
    with raw(api):
        eventually(lambda: api.metric("hearline_dead_peers_total") == before + 1, what="the end of the dead peer")


@pytest.mark.parametrize(
    "start", [b"", b"GET /v1/stream HTT", upgrade_request()[:-2], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_half_a_handshake_from_many_clients_keeps_nobody_out(api: LiveApi, start: bytes) -> None:
    """More of them than there are spare threads."""
    with ExitStack() as stack:
        clients = [stack.enter_context(raw(api, upgraded=False)) for _ in range(40)]
        for client in clients:
            client.send(start)
        assert api.get("/health")[0] == 200
        for client in clients:  # and they are let go in time
            client.sock.settimeout(20)
            with suppress(ConnectionResetError):
                while client.sock.recv(4_096):
                    pass


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("half_close", [False, True])
def test_a_whole_stream_in_one_write_is_served(api: LiveApi, half_close: bool) -> None:
    """Frames right behind the handshake count; and a client that has said ``end`` need not send any more."""
    stream = frame(TEXT, encode(Start(partials=False)).encode()) + frame(BINARY, SOUND)
    with raw(api, upgraded=False) as client:
        client.send(upgrade_request() + stream + frame(TEXT, encode(End()).encode()))
        if half_close:
            client.sock.shutdown(socket.SHUT_WR)
        client.read_head()
        messages: list[str] = []
        while not messages or '"done"' not in messages[-1]:
            messages.append(read_message(client))
        assert '"audio_s":1.0' in messages[-1]
        assert sum('"final"' in message for message in messages) == 1
        assert client.read_close() == 1000


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("opcode", "length"), [(TEXT, 65_537), (BINARY, 4_294_967_296)])
def test_a_message_too_long_is_refused_by_its_announced_length(api: LiveApi, opcode: int, length: int) -> None:
    with raw(api) as client:
        client.send(frame(opcode, b"{", length=length))
        told = read_message(client)
        assert "frame_too_big" in told
        assert str(length) in told, "the size is said"
        assert client.read_frame() == (CLOSE, struct.pack("!H", 1009) + b"frame_too_big")


@pytest.mark.usefixtures("worker")
def test_random_bytes_after_the_upgrade_never_harm(api: LiveApi, rng: random.Random) -> None:
    """Valid frames, cut, repeated and flipped at random."""
    pieces = [frame(BINARY, SOUND[:700]), frame(TEXT, b'{"type":"flush"}'), frame(PING), frame(TEXT, b'{"type":"end"}')]
    for _ in range(60):
        stream = bytearray(b"".join(rng.choice(pieces) for _ in range(6)))
        for _ in range(rng.choice([0, 0, 1, 5])):
            stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
        with raw(api) as client:
            _send(client, bytes(stream[: rng.randrange(1, len(stream) + 1)]))
            rng.choice([vanish, RawClient.close])(client)
    with api.connect() as client:
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Done)


@pytest.mark.usefixtures("worker")
def test_ten_minutes_of_audio_at_once_stay_bounded(api: LiveApi) -> None:
    (web,) = api.web_processes()
    before = web.memory_info().rss
    chunk = speech(10.0)
    peak = 0
    with api.connect() as client:
        client.send(encode(Start(language="en")))
        for _ in range(60):
            client.send(chunk)
            peak = max(peak, web.memory_info().rss)
        client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == 1000
    finals = [message for message in messages if isinstance(message, Final)]
    assert messages[-1] == Done(audio_s=600.0, finals=len(finals))
    assert len(finals) > 600 / 28
    assert peak - before < 40_000_000
