"""A Cluster of three real nodes under the queue and the sessions: spread, moved slots, dead nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest
import redis
from redis.exceptions import ClusterCrossSlotError

from queueing.connect import check_redis, connect
from queueing.errors import QueueUnavailable, UnsafeRedis
from queueing.job import NewJob
from queueing.job_queue import JobQueue
from queueing.keys import QueueKeys
from queueing.lane import Kind
from queueing.redis_check import Deployment, inspect_redis
from queueing.redis_cluster import ClusterRedis, node_of
from queueing.slot_map import Address
from sessions.audio_buffer import AudioBuffer
from sessions.keys import SessionKeys
from tests.support.deployments import Cluster, Server
from tests.support.eventually import eventually

SESSIONS = [f"s{number}" for number in range(24)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Cluster that goes on for what is there when a part is gone."""
    with Cluster(full_coverage=False) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[ClusterRedis]:
    client = connect(cluster.url, max_connections=4)
    assert isinstance(client, ClusterRedis)
    client.flushall()
    yield client
    client.close()


def session_at(cluster: Cluster, node: Server) -> str:
    """A session whose keys lie on this node."""
    return next(one for one in (f"at-{n}" for n in count()) if cluster.owner(SessionKeys(one).audio) is node)


def queue_node(cluster: Cluster) -> Server:
    return cluster.owner(QueueKeys("main").policy)


def final_of(session: str) -> NewJob:
    return NewJob(f"{session}:f:0", session, Kind.FINAL, 0, 0, 6_400, 0.2, "front")


def test_a_queue_lives_on_one_node_and_sessions_on_all(cluster: Cluster, client: ClusterRedis) -> None:
    queue, buffer = JobQueue(client), AudioBuffer(client)
    for session in SESSIONS:
        buffer.create(session, {"front": "front"})
        buffer.append(session, 0, bytes(6_400))
        queue.enqueue(final_of(session))
    assert {job.job.session for job in queue.claim("w", "n", max_jobs=1)} <= set(SESSIONS)
    assert queue.stats().waiting == len(SESSIONS) - 1
    holding = [
        {key.partition("}")[0] for key in (raw.decode() for raw in node.call("KEYS", "*"))}
        for node in cluster.primaries
    ]
    queues = [sum(prefix.startswith("hl:{q:") for prefix in node) for node in holding]
    sessions = [sum(prefix.startswith("hl:{s:") for prefix in node) for node in holding]
    assert sorted(queues) == [0, 0, 1]
    assert sum(sessions) == len(SESSIONS)
    assert min(sessions) > 0, "sessions, the bulk of the bytes, spread over all nodes"
    assert len(list(client.scan_iter("hl:{s:*:audio"))) == len(SESSIONS)


def test_first_commands_of_many_threads_find_their_way(cluster: Cluster) -> None:
    client = connect(cluster.url)
    start, written = threading.Barrier(8), []

    def write(number: int) -> None:
        start.wait()
        written.append(client.set(f"k{number}", number, ex=60))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()
    assert written == [True] * 8


def test_a_pipeline_over_several_slots_is_a_fault_that_shows(client: ClusterRedis) -> None:
    pipeline = client.pipeline(transaction=False)
    pipeline.get("a")
    pipeline.get("b")
    with pytest.raises(ClusterCrossSlotError, match="one slot"):
        pipeline.execute()
    with pytest.raises(ClusterCrossSlotError):
        client.unlink("a", "b")


def test_a_subscriber_hears_whichever_node_publishes(cluster: Cluster, client: ClusterRedis) -> None:
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe("channel")
    eventually(lambda: pubsub.get_message(timeout=0) is None and pubsub.subscribed)
    for node in cluster.primaries:
        node.call("PUBLISH", "channel", "word")
        eventually(lambda: pubsub.get_message(timeout=0.1), what="the word")
    pubsub.close()


def test_time_is_that_of_the_queues_node(cluster: Cluster, client: ClusterRedis) -> None:
    place = node_of(client, QueueKeys("main").policy).connection_pool.connection_kwargs
    assert place["port"] == queue_node(cluster).port


def test_scripts_that_every_node_forgot_are_sent_again(client: ClusterRedis) -> None:
    buffer = AudioBuffer(client)
    for flushed in (False, True):
        for session in SESSIONS:
            buffer.append(session, 6_400 if flushed else 0, bytes(6_400))
        client.script_flush()


def move_slot(cluster: Cluster, slot: int, source: Server, target: Server) -> Iterator[str]:
    """Move a slot as an operator would, a step at a time."""
    target.call("CLUSTER SETSLOT", slot, "IMPORTING", cluster.id_of(source))
    source.call("CLUSTER SETSLOT", slot, "MIGRATING", cluster.id_of(target))
    yield "open"
    for key in source.call("CLUSTER GETKEYSINSLOT", slot, 100):
        source.call("MIGRATE", "127.0.0.1", target.port, key, 0, 5_000)
        yield f"moved {key!r}"
    for node in (target, source, *cluster.primaries):
        node.call("CLUSTER SETSLOT", slot, "NODE", cluster.id_of(target))
    yield "done"


def test_a_sessions_slot_may_move_while_it_is_written_to(cluster: Cluster, client: ClusterRedis) -> None:
    """In the middle, when one of its keys has gone and the other not, a write is refused with a reason; before and
    after, nothing is noticed. So a writer that tries again loses nothing."""
    source, target = cluster.primaries[0], cluster.primaries[1]
    session, buffer, written = session_at(cluster, source), AudioBuffer(client), 0
    buffer.create(session, {"front": "front"})
    slot = int(source.call("CLUSTER KEYSLOT", SessionKeys(session).audio))
    outcomes = []
    for there, back in ((source, target), (target, source)):
        for _step in move_slot(cluster, slot, there, back):
            try:
                assert buffer.append(session, written, bytes([written // 640 % 251] * 640)) == written + 640
                written += 640
                outcomes.append("written")
            except QueueUnavailable as error:
                outcomes.append(str(error))
    refused = [outcome for outcome in outcomes if outcome != "written"]
    assert all("multiple keys request during rehashing" in outcome.lower() for outcome in refused), refused
    assert outcomes.count("written") >= 4
    expected = b"".join(bytes([n % 251] * 640) for n in range(written // 640))
    assert buffer.read(session, 0, written) == expected


def test_a_dead_node_costs_its_own_sessions_an_error_and_no_other(cluster: Cluster, client: ClusterRedis) -> None:
    victim = next(node for node in cluster.primaries if node is not queue_node(cluster))
    queue, buffer = JobQueue(client), AudioBuffer(client)
    dead, alive = session_at(cluster, victim), session_at(cluster, queue_node(cluster))
    for session in (dead, alive):
        buffer.append(session, 0, bytes(640))
    victim.kill()
    try:
        for _ in range(3):
            with pytest.raises(QueueUnavailable):
                buffer.append(dead, 640, bytes(640))
            assert buffer.append(alive, 640, bytes(640)) == 1_280
            buffer.trim(alive, 640)
            buffer.delete(alive)
            buffer.append(alive, 0, bytes(640))
        assert queue.enqueue(final_of(alive)).status == "queued"
        assert queue.stats().waiting == 1
    finally:
        victim.start()
    eventually(lambda: victim.call("CLUSTER INFO")["cluster_state"] == "ok", what="the node back in its place")
    assert buffer.append("new-" + dead, 0, bytes(640)) == 640
    eventually(lambda: not buffer.read(dead, 0, 0), what="an answer")
    assert check_redis(client)


def test_every_primary_is_checked(cluster: Cluster, client: ClusterRedis) -> None:
    report = inspect_redis(client)
    assert report.deployment is Deployment.CLUSTER
    assert {server.name for server in report.servers} == {node.place for node in cluster.primaries}
    assert {server.full_coverage for server in report.servers} == {"no"}
    last = cluster.primaries[-1]
    last.call("CONFIG SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnsafeRedis, match=rf"{last.place} has maxmemory-policy 'allkeys-lru'.*parameter group"):
            check_redis(client)
    finally:
        last.call("CONFIG SET", "maxmemory-policy", "noeviction")


def test_a_url_that_takes_one_for_the_other_is_refused_with_the_right_one(cluster: Cluster, redis_url: str) -> None:
    with (
        pytest.raises(UnsafeRedis, match=r"a node of a Redis Cluster.*write redis\+cluster://"),
        connect(f"redis://{cluster.primaries[0].place}/0") as single,
    ):
        check_redis(single)
    place = redis_url.removeprefix("redis://").removesuffix("/0")
    with connect(f"redis+cluster://{place}") as wrong, pytest.raises(UnsafeRedis, match=r"no Cluster.*write redis://"):
        check_redis(wrong)


def test_seeds_that_do_not_answer_are_passed_over(cluster: Cluster) -> None:
    with connect(f"redis+cluster://127.0.0.1:1,{cluster.primaries[2].place}") as client:
        assert client.ping()
    with connect("redis+cluster://127.0.0.1:1") as nobody, pytest.raises(QueueUnavailable, match=r"127\.0\.0\.1:1: "):
        check_redis(nobody)
    with connect("redis+cluster://127.0.0.1:1") as nobody, pytest.raises(redis.ConnectionError):
        nobody.pubsub()


def test_a_moved_slot_is_followed_at_once_and_the_map_asked_for_anew(client: ClusterRedis, cluster: Cluster) -> None:
    key = "followed"
    slot = int(cluster.primaries[0].call("CLUSTER KEYSLOT", key))
    owner = client.map.owner(slot)
    wrong = next(address for address in client.map.primaries() if address != owner)
    client.map.moved(slot, Address("127.0.0.1", wrong.port))
    client.map._is_old = False
    assert client.set(key, 1, ex=60)
    assert client.map.owner(slot) == owner
    client.map.moved(slot, wrong)
    client.map._is_old = False
    pipeline = client.pipeline(transaction=True)
    pipeline.get(key)
    pipeline.time()
    value, _ = pipeline.execute()
    assert value == b"1"
