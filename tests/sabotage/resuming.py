"""Mutations of what lets a stream go on on another connection."""

from __future__ import annotations

from tests.sabotage.entry import Sabotage

RESUMING = (
    Sabotage(
        "old-epoch-appends",
        "sessions/lua/append.lua",
        "if (tonumber(known[2]) or 0) > tonumber(ARGV[7]) then return {'TAKEN', (base or 0) + held} end",
        "if false then return {'TAKEN', (base or 0) + held} end",
        "A connection whose stream was resumed elsewhere stores nothing more.",
        "tests/integration/test_audio_take_up.py::test_an_older_connection_writes_nothing",
    ),
    Sabotage(
        "any-token-resumes",
        "sessions/lua/take_up.lua",
        "if token ~= current and token ~= known[2] then return {'REFUSED', 0} end",
        "if false then return {'REFUSED', 0} end",
        "A wrong or void token resumes nothing.",
        "tests/integration/test_audio_take_up.py::test_whoever_is_not_its_client_changes_nothing",
    ),
    Sabotage(
        "slot-seen-late-is-reaped",
        "sessions/lua/lib/expired.lua",
        "redis.call('ZADD', parked, 'NX', now + grace_ms, session)",
        "redis.call('ZADD', parked, 'NX', 0, session)",
        "A session whose slot expired waits for its grace time from then on.",
        "tests/integration/test_stream_slots.py::test_a_clock_of_redis_that_jumps_does_not_have_live_streams_reaped",
    ),
)
