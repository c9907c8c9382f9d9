"""Streams counted for their owners: never more than allowed, never fewer than there are, none for good."""

from __future__ import annotations

import random

import pytest
import redis

from queueing.keys import QueueKeys
from sessions.owners import OverLimit, Owner, StreamOwners

T0 = 1_700_000_000_000
TTL_MS = 30_000
ADDRESS, KEY, OTHER = Owner("address:10.0.0.1", 3), Owner("key:kiosk", 4), Owner("key:other")


@pytest.fixture
def owners(redis_client: redis.Redis) -> StreamOwners:
    return StreamOwners(redis_client, "main", ttl_s=TTL_MS / 1000)


def test_random_lives_of_streams_count_as_a_model_says(
    owners: StreamOwners, redis_client: redis.Redis, rng: random.Random
) -> None:
    keys, now = QueueKeys("main"), T0
    model: dict[str, dict[str, int]] = {owner.name: {} for owner in (ADDRESS, KEY, OTHER)}
    known: dict[str, list[Owner]] = {}
    for step in range(400):
        now += rng.choice([0, 10, 1_000, 12_000])
        for streams in model.values():
            for session in [session for session, until in streams.items() if until <= now]:
                del streams[session]
        action = rng.choice(["open", "open", "open again", "close", "keep", "crash"])
        session = f"s{step}"
        if action == "open again" and known:
            session = rng.choice(list(known))
        if action.startswith("open"):
            mine = known.get(session) or rng.sample([ADDRESS, KEY, OTHER], rng.randint(1, 3))
            full = [
                owner
                for owner in mine
                if owner.max_streams
                and session not in model[owner.name]
                and len(model[owner.name]) >= owner.max_streams
            ]
            over = owners.add(session, mine, now_ms=now)
            assert over == (OverLimit(full[0], too_fast=False) if full else None)
            if not full:
                known[session] = mine
                for owner in mine:
                    model[owner.name][session] = now + TTL_MS
        elif known and action == "close":
            session = rng.choice(list(known))
            owners.remove(session, [owner.name for owner in known[session]])
            for owner in known.pop(session):
                model[owner.name].pop(session, None)
        elif known and action == "crash":  # its front end is gone: nobody renews it, nobody removes it
            known.pop(rng.choice(list(known)))
        elif known:
            live = {one: [owner.name for owner in mine] for one, mine in known.items()}
            counts = owners.keep(live, now_ms=now)
            for one, names in live.items():
                for name in names:
                    model[name][one] = now + TTL_MS
            assert counts == {name: len(model[name]) for names in live.values() for name in names}
        for name, streams in model.items():
            assert redis_client.zcount(keys.streams_of(name), now + 1, "+inf") == len(streams)
    for key in redis_client.scan_iter():
        assert redis_client.pttl(key) > 0, f"{key!r} would stay for good"


def test_tries_are_counted_by_the_minute_and_refused_ones_cost_no_slot(
    owners: StreamOwners, redis_client: redis.Redis
) -> None:
    eager = Owner("address:10.0.0.9", max_streams=1, max_tries=3)
    assert owners.add("a", [eager]) is None
    assert owners.add("b", [eager]) == OverLimit(eager, too_fast=False)
    assert owners.add("a", [eager]) is None, "it has its slot"
    assert owners.add("a", [eager, OTHER]) == OverLimit(eager, too_fast=True)
    keys = QueueKeys("main")
    assert redis_client.zcard(keys.streams_of(OTHER.name)) == 0
    assert 0 < redis_client.pttl(keys.tries_of(eager.name)) <= 60_000
    redis_client.delete(keys.tries_of(eager.name))
    assert owners.add("a", [eager]) is None


def test_front_ends_share_the_limit_and_the_second_owner_is_named(redis_client: redis.Redis) -> None:
    one, two = (StreamOwners(redis_client, "main") for _ in range(2))
    single = Owner("key:single", 1)
    assert one.add("a", [OTHER, single]) is None
    assert two.add("b", [OTHER, single]) == OverLimit(single, too_fast=False)
    assert redis_client.zcard(QueueKeys("main").streams_of(OTHER.name)) == 1, "all or none"
    one.remove("a", [OTHER.name, single.name])
    one.remove("a", [OTHER.name, single.name])
    assert two.add("b", [OTHER, single]) is None
    assert two.keep({}) == {}
