"""Mutations of how streams take turns on few threads."""

from __future__ import annotations

from tests.sabotage.entry import Sabotage

_TURNS = "tests/unit/test_turns.py"

TURNS = (
    Sabotage(
        "nobody-takes-over",
        "api/turns.py",
        "if stuck is None or self._steps != seen or used_s - before_s > COMPUTES * pause_s:",
        "if True:",
        "A stream that is held up holds up no other.",
        f"{_TURNS}::test_a_step_that_is_held_up_holds_up_nobody",
    ),
    Sabotage(
        "held-up-but-watched",
        "api/turns.py",
        "self._unwatch(stuck)",
        "pass",
        "What waits for a stream that is held up is not looked at in vain.",
        f"{_TURNS}::test_a_step_that_is_held_up_holds_up_nobody",
    ),
    Sabotage(
        "first-wait-counts",
        "api/turns.py",
        "if seat.deadline_s <= now_s:",
        "if True:",
        "A stream waits as long as it said last.",
        f"{_TURNS}::test_a_new_wait_replaces_the_one_before",
    ),
    Sabotage(
        "timer-for-each-wait",
        "api/turns.py",
        "if seat.deadline_s < seat.alarm_s:",
        "if True:",
        "Waits that end early leave nothing behind.",
        f"{_TURNS}::test_long_waits_that_end_early_leave_no_timers_behind",
    ),
    Sabotage(
        "who-computes-waits-for-nobody",
        "api/seats.py",
        "self.turn_s += min(max(0.0, used_s - USUAL_S), MOST_CHARGED_S)",
        "pass",
        "A stream that computes for long goes after those that do not.",
        "tests/unit/test_turns_fair.py::test_those_who_compute_without_end_go_after_one_who_does_not",
    ),
    Sabotage(
        "who-waits-for-long-goes-on-waiting",
        "api/seats.py",
        "self._aged_last = not self._aged_last and now_s - since_s > AGED_S",
        "self._aged_last = False",
        "A stream that computed once is not forgotten behind many who do not.",
        "tests/unit/test_turns_fair.py::test_who_used_more_is_not_forgotten_among_many_who_use_little",
    ),
    Sabotage(
        "queue-keeps-who-was-taken",
        "api/seats.py",
        "if len(self._heap) > 64 + 2 * self._size:  # most were taken by way of the line",
        "if False:",
        "What was taken for its age leaves nothing in the queue.",
        "tests/unit/test_turns_fair.py::test_those_who_are_taken_for_their_age_alone_leave_nothing_behind",
    ),
    Sabotage(
        "held-up-server-blames-its-client",
        "api/socket.py",
        "pinged = self._quiet_s > self._heard_s",
        "pinged = True",
        "A client is given up only after a ping that it had time to answer.",
        "tests/unit/test_api_socket_quiet.py::test_a_client_is_not_given_up_for_a_time_in_which_the_server_was_held_up",
    ),
    Sabotage(
        "replaced-timers-stay",
        "api/turns.py",
        "if len(self._timers) > 64 + 2 * len(self._seats):  # most of them count no more",
        "if False:",
        "What is kept of waits is bounded by the number of streams.",
        f"{_TURNS}::test_short_waits_between_long_ones_leave_few_timers_behind",
    ),
    Sabotage(
        "an-end-holds-its-stream",
        "api/turns.py",
        "seat.error = None  # its traceback has this frame, and so the stream",
        "pass",
        "Nothing of a stream that has ended waits for the collector of cycles.",
        "tests/unit/test_api_garbage.py::test_what_a_step_raises_holds_nothing_once_it_was_handled",
    ),
    Sabotage(
        "looks-through-all",
        "api/garbage.py",
        "gc.set_threshold(YOUNG, MIDDLE, NEVER)",
        "gc.set_threshold(20 * YOUNG, MIDDLE, NEVER)",
        "No look for cycles stops a web process for long.",
        "tests/unit/test_api_garbage.py::test_a_look_goes_through_few_objects_however_many_there_are",
    ),
    Sabotage(
        "old-cycles-stay",
        "api/garbage.py",
        "if (self._beats and not streams) or self._beats >= ALL_EVERY:",
        "if self._beats >= ALL_EVERY:",
        "Old cycles go when no stream is left.",
        "tests/unit/test_api_garbage.py::test_cycles_go_when_no_stream_is_left_or_after_a_long_time",
    ),
    Sabotage(
        "ending-process-tries-without-a-pause",
        "api/patience.py",
        "if ends or self.clock.monotonic() + pause_s > give_up_s:",
        "if self.clock.monotonic() + pause_s > give_up_s:",
        "A process that ends while Redis is away has time to tell its clients.",
        "tests/unit/test_api_patience.py::test_a_process_that_ends_tries_once_more_and_not_all_the_time",
    ),
)
