"""The mutations. Each breaks one line of the code and with it one invariant; a named test must then fail.

``python -m tests.sabotage`` tries them; docs/sabotage.md is rendered from here (``python -m tests.sabotage --page``).
"""

from __future__ import annotations

from dataclasses import dataclass

QUICK = (
    "tests/unit/",
    "tests/integration/test_queue_",
    "tests/integration/test_stream_slots",
    "tests/integration/test_audio",
)


@dataclass(frozen=True, slots=True)
class Sabotage:
    """``old``: a line of ``file`` without its indentation, there exactly once; ``new`` takes its place."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    caught_by: str

    @property
    def quick(self) -> bool:
        """Whether its test takes a second or so: no process of the service is started."""
        return self.caught_by.startswith(QUICK)


SABOTAGES = (
    Sabotage(
        "generation-check",
        "queueing/lua/complete.lua",
        "if job.generation ~= generation then return 'STALE' end",
        "if false then return 'STALE' end",
        "An older lease can publish nothing.",
        "tests/integration/test_queue_leases.py::test_an_older_generation_can_neither_complete_nor_fail_nor_renew",
    ),
    Sabotage(
        "completed-once",
        "queueing/lua/complete.lua",
        "if job.state == 'done' then return 'DONE' end",
        "if job.state == 'done' then job.state = 'leased' end",
        "A result is published once, however often it is reported.",
        "tests/integration/test_queue_delivery.py::test_completing_again_after_a_lost_reply_publishes_nothing",
    ),
    Sabotage(
        "lease-kept-at-completion",
        "queueing/lua/complete.lua",
        "redis.call('ZREM', KEYS[2], id)",
        "local _ = KEYS[2]",
        "A finished job holds no lease.",
        "tests/integration/test_queue_delivery.py::test_a_batch_is_completed_also_where_redis_forgot_the_script",
    ),
    Sabotage(
        "cancelled-is-published",
        "queueing/lua/complete.lua",
        "if job.state == 'cancelled' then",
        "if false then",
        "What was cancelled says nothing any more: no partial follows the final it belongs to.",
        "tests/integration/test_queue_enqueue.py::test_a_final_makes_the_partial_being_decoded_obsolete",
    ),
    Sabotage(
        "wake-up-re-arm",
        "queueing/lua/claim.lua",
        "if total > taken then arm() else redis.call('DEL', wake) end",
        "if total <= taken then redis.call('DEL', wake) end",
        "Ready work implies a worker that wakes: who claims passes a coalesced wake-up on.",
        "tests/integration/test_queue_wake.py::test_one_coalesced_token_wakes_three_workers_one_after_the_other",
    ),
    Sabotage(
        "requeue-without-wake-up",
        "queueing/lua/lib/lanes.lua",
        "arm()",
        "",
        "Whatever comes into a lane, or back into one, wakes a worker.",
        "tests/integration/test_queue_wake.py::test_every_way_back_into_a_lane_wakes",
    ),
    Sabotage(
        "claim-nonce",
        "queueing/lua/claim.lua",
        "if memory and string.match(memory, '^%S+') == nonce then",
        "if false then",
        "A claim whose reply was lost gets the same jobs again.",
        "tests/integration/test_queue_leases.py::test_asking_again_with_the_same_nonce_returns_the_same_jobs",
    ),
    Sabotage(
        "claim-order",
        "queueing/lua/lib/most_urgent.lua",
        "if tier < best_tier or urgency > best_urgency then",
        "if tier < best_tier or urgency < best_urgency then",
        "The most urgent job is taken first.",
        "tests/property/test_claim_order.py::test_every_policy_claims_in_the_order_of_the_oracle",
    ),
    Sabotage(
        "overdue-first",
        "queueing/lua/lib/most_urgent.lua",
        "if earliest_due <= now then best = overdue end",
        "if earliest_due < 0 then best = overdue end",
        "A job older than its kind's greatest age is taken first, whatever the policy.",
        "tests/property/test_claim_order.py::test_the_greatest_age_counts_to_the_millisecond",
    ),
    Sabotage(
        "attempts-not-counted",
        "queueing/lua/lib/lease_from.lua",
        "job[1], job[2] = string.format('%d', job[1] + 1), string.format('%d', job[2] + 1)",
        "job[1] = string.format('%d', job[1] + 1)",
        "A job that kills its workers is given up after so many attempts.",
        "tests/integration/test_queue_leases.py::test_a_poison_job_ends_in_the_dead_set_and_its_client_is_told",
    ),
    Sabotage(
        "poison-takes-company",
        "queueing/lua/lib/lease_from.lua",
        "elseif claimed[2] and (alone or job[2] ~= '0') then",
        "elseif false then",
        "What was tried before runs alone: only the poison dies.",
        "tests/integration/test_queue_poison.py::test_only_the_poison_dies",
    ),
    Sabotage(
        "renewal-by-an-older-generation",
        "queueing/lua/renew.lua",
        "if job[1] == 'leased' and job[2] == ARGV[at + 1] then",
        "if job[1] == 'leased' then",
        "Only its holder can renew a lease.",
        "tests/integration/test_queue_leases.py::test_an_older_generation_can_neither_complete_nor_fail_nor_renew",
    ),
    Sabotage(
        "release-by-an-older-generation",
        "queueing/lua/release.lua",
        "elseif job and job.generation == ARGV[at + 1] and job.state == 'leased' then",
        "elseif job and job.state == 'leased' then",
        "Only its holder can give a job back.",
        "tests/integration/test_queue_leases.py::test_an_older_generation_can_neither_complete_nor_fail_nor_renew",
    ),
    Sabotage(
        "final-beside-its-partial",
        "queueing/lua/enqueue.lua",
        "local was = open and cancel(open, session)",
        "local was = false",
        "A final takes its session's partial out of the queue.",
        "tests/integration/test_queue_enqueue.py::test_a_final_removes_its_sessions_queued_partial_alone",
    ),
    Sabotage(
        "partial-after-its-final",
        "queueing/lua/enqueue.lua",
        "if past[1] and segment <= tonumber(past[1]) then return {'OBSOLETE', 0} end",
        "",
        "No partial of a segment is queued once its final is.",
        "tests/integration/test_queue_enqueue.py::test_no_partial_follows_the_final_it_belongs_to",
    ),
    Sabotage(
        "no-bound-on-the-queue",
        "queueing/lua/enqueue.lua",
        "if count_jobs(index) >= tonumber(ARGV[8]) then",
        "if false then",
        "The queue is bounded.",
        "tests/integration/test_queue_enqueue.py::test_a_full_queue_refuses_partials_and_files_first_then_finals",
    ),
    Sabotage(
        "job-without-expiry",
        "queueing/lua/enqueue.lua",
        "for _, key in ipairs({job_key, session_key, set_key}) do redis.call('PEXPIRE', key, job_ttl_ms) end",
        "for _, key in ipairs({session_key, set_key}) do redis.call('PEXPIRE', key, job_ttl_ms) end",
        "Every key but the permanent ones expires.",
        "tests/integration/test_redis_keys_page.py::test_types_and_expiries_are_as_documented",
    ),
    Sabotage(
        "events-without-expiry",
        "queueing/lua/lib/deliver.lua",
        "redis.call('PEXPIRE', key, events_ttl_ms)",
        "",
        "A session's durable events expire.",
        "tests/integration/test_queue_delivery.py::test_events_are_bounded_and_expire",
    ),
    Sabotage(
        "final-not-kept",
        "queueing/lua/lib/deliver.lua",
        "if job.kind ~= 'partial' then",
        "if false then",
        "A final is kept until its session has it: what pub/sub loses is read again.",
        "tests/integration/test_session_on_redis.py::test_a_final_that_pubsub_lost_comes_from_the_durable_events",
    ),
    Sabotage(
        "stale-partials-stay",
        "queueing/lua/sweep.lua",
        "for _, id in ipairs(late) do",
        "for _, id in ipairs({}) do",
        "Partials that waited too long are dropped.",
        "tests/integration/test_queue_leases.py::test_a_partial_that_waited_too_long_is_dropped_and_its_session_told",
    ),
    Sabotage(
        "sweeps-live-leases",
        "queueing/lua/sweep.lua",
        "local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, batch)",
        "local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', '+inf', 'LIMIT', 0, batch)",
        "A sweep takes only what has run out: no two live leases on a job.",
        "tests/integration/test_queue_leases.py::test_renewing_moves_the_expiry",
    ),
    Sabotage(
        "dead-set-without-cap",
        "queueing/lua/lib/give_up.lua",
        "if redis.call('ZCARD', dead) > max_dead then",
        "if false then",
        "The dead set is bounded.",
        "tests/integration/test_queue_admin.py::test_the_dead_are_capped_and_the_oldest_go",
    ),
    Sabotage(
        "no-cap-on-streams",
        "sessions/lua/acquire.lua",
        "elseif not resumed and taken >= tonumber(ARGV[3]) then",
        "elseif false then",
        "Streams are admitted up to the cap, whoever asks.",
        "tests/integration/test_stream_slots.py::test_the_cap_holds_and_a_released_slot_is_free",
    ),
    Sabotage(
        "slots-never-expire",
        "sessions/lua/acquire.lua",
        "redis.call('ZREMRANGEBYSCORE', streams, '-inf', now)",
        "",
        "The slots of a front end that died come free.",
        "tests/integration/test_stream_slots.py::test_slots_of_a_crashed_front_end_expire",
    ),
    Sabotage(
        "append-anywhere",
        "sessions/lua/append.lua",
        "if held < tonumber(ARGV[2]) and keep_from < offset then return {'LOST', held} end",
        "",
        "Audio that Redis lost is noticed before more is stored behind the hole.",
        "tests/integration/test_audio_buffer.py::test_audio_that_is_gone_is_noticed_by_both_sides",
    ),
    Sabotage(
        "audio-without-bound",
        "sessions/lua/append.lua",
        "if wanted - base > tonumber(ARGV[6]) then return {'FULL', held} end",
        "",
        "The bytes that a session holds are bounded.",
        "tests/integration/test_audio_buffer.py::test_a_session_is_bounded",
    ),
    Sabotage(
        "no-trim",
        "sessions/lifecycle.py",
        "return self._say(said) + self._trim() + self.decodes.ask_held_back(now)",
        "return self._say(said) + self.decodes.ask_held_back(now)",
        "What is final is forgotten: an hour takes no more than a minute.",
        "tests/integration/test_session_on_redis.py::test_a_long_stream_of_speech_and_silence_in_constant_memory",
    ),
    Sabotage(
        "accepts-without-bound",
        "sessions/timers.py",
        "return self._stream.phase is Phase.ENDING or not self._stream.full",
        "return True",
        "A client far ahead of its finals is held back.",
        "tests/unit/test_session_finals.py::test_a_client_is_held_back_while_too_many_finals_wait",
    ),
    Sabotage(
        "finals-said-again",
        "sessions/finals.py",
        "if final.job is not None and final.job.id == delivery.job and final.delivery is None:",
        "if final.job is not None and final.job.id == delivery.job:",
        "A final is never changed, however often it is delivered.",
        "tests/unit/test_session_finals.py::test_a_final_that_waits_for_its_turn_is_not_changed_by_a_repetition",
    ),
    Sabotage(
        "finals-out-of-order",
        "sessions/finals.py",
        "yield self._due.popleft()",
        "yield self._due.pop()",
        "Finals are said in the order of what was spoken.",
        "tests/unit/test_session_finals.py::test_finals_are_said_in_order_whatever_the_order_of_their_decodes",
    ),
    Sabotage(
        "gap-not-seen",
        "sessions/finals.py",
        "elif seen_unanswered and final.job is not None:",
        "elif False:",
        "A later answer shows that an earlier one was lost: the durable events are read at once.",
        "tests/unit/test_session_faults.py::test_reading_starts_behind_what_was_read_never_behind_what_was_heard",
    ),
    Sabotage(
        "partial-out-of-its-segment",
        "sessions/lifecycle.py",
        "current = delivery.segment == self.decodes.segment",
        "current = True",
        "A partial that comes after its final is not said.",
        "tests/unit/test_session_partials.py::test_no_partial_follows_the_final_it_belongs_to",
    ),
    Sabotage(
        "endpointer-off-by-one",
        "sessions/endpointing.py",
        "if self._pause is not None and speech.silence >= self._pause:",
        "if self._pause is not None and speech.silence > self._pause:",
        "A segment ends with the frame that completes the pause.",
        "tests/unit/test_endpointing.py::test_the_segment_comes_with_the_frame_that_completes_the_pause",
    ),
    Sabotage(
        "last-word-without-margin",
        "sessions/endpointing.py",
        "end = min(position, self._spoken_to(speech) + self._margin) if speech.silence else position",
        "end = min(position, self._spoken_to(speech)) if speech.silence else position",
        "The last word is decoded with what follows it.",
        "tests/unit/test_endpointing.py::TestFinish::test_covers_everything_so_far",
    ),
    Sabotage(
        "slot-not-given-back",
        "api/admission.py",
        "self._release_slot(session)",
        "",
        "A stream that is over holds no slot.",
        "tests/integration/test_api_disconnects.py::test_vanishing_again_and_again_leaves_nothing[reset-after_the_upgrade]",
    ),
    Sabotage(
        "send-without-deadline",
        "api/socket.py",
        "self.sock.settimeout(timeout_s)",
        "self.sock.settimeout(3600)",
        "A client that does not read is given up.",
        "tests/unit/test_api_socket.py::test_a_client_that_never_reads_ends_the_stream_within_the_send_timeout",
    ),
    Sabotage(
        "ready-without-a-worker",
        "api/health.py",
        "elif not service.pulse.workers_alive:",
        "elif False:",
        "Ready means that a worker has loaded its model.",
        "tests/integration/test_api_http.py::test_readiness_follows_the_workers",
    ),
    Sabotage(
        "hung-decode-tolerated",
        "workers/lifecycle.py",
        "if decoding_s > self._limits.max_decode_s:",
        "if False:",
        "A decode that never returns ends its worker.",
        "tests/unit/test_worker_lifecycle.py::test_a_decode_beyond_its_limit_is_hung",
    ),
    Sabotage(
        "leases-not-renewed",
        "workers/lease_keeper.py",
        "answer = self._queue.renew(leases)",
        "answer = self._queue.renew([])",
        "A decode longer than its lease is published once.",
        "tests/integration/test_worker_loop.py::test_decode_three_times_longer_than_the_lease_publishes_once",
    ),
)
