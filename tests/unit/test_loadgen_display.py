"""What people see: a line redrawn in place, plain lines, JSON."""

from __future__ import annotations

import io
import json
import random
from typing import get_args

import pytest
from rich.cells import cell_len

from loadgen.display import CLEAR, DIM, SOLID, JsonDisplay, TextDisplay, clock_time, printable, tail
from loadgen.errors import NoAnswer
from sessions.wire import (
    Ack,
    ClientMessage,
    Done,
    Error,
    Final,
    Partial,
    Ready,
    ServerMessage,
    Status,
    Timing,
    Word,
    encode,
)
from tests.support.fake_service import LIMITS

PARTIAL = Partial(seq=1, start_s=0, end_s=61.25, text=" hello there")
FINAL = Final(seq=2, start_s=0, end_s=62.0, text="Hello there.", last=True)


def test_the_live_line_is_redrawn_in_place_and_the_final_takes_its_place() -> None:
    out, errors = io.StringIO(), io.StringIO()
    display = TextDisplay(out, errors, lambda: 80)
    display.message(1, PARTIAL)
    display.message(2, PARTIAL)
    display.message(3, FINAL)
    live = f"{CLEAR}1:01.2 {DIM}hello there{SOLID}"
    assert out.getvalue() == f"{live}{live}{CLEAR}[0:00.0 - 1:02.0] Hello there.\n"
    display.message(4, FINAL)
    assert out.getvalue().count(CLEAR) == 3, "nothing to clear after a final"


def test_a_note_does_not_end_up_in_the_live_line() -> None:
    out = io.StringIO()
    display = TextDisplay(out, out, lambda: 80)
    display.message(1, PARTIAL)
    display.note("warning: a gap")
    assert out.getvalue().endswith(f"hello there{SOLID}{CLEAR}warning: a gap\n")


def test_stable_words_are_solid_and_the_rest_is_dimmed() -> None:
    out = io.StringIO()
    display = TextDisplay(out, out, lambda: 23)
    for stable in ("hello", "hello there you"):
        display.message(1, Partial(seq=1, start_s=0, end_s=1, stable=stable, text="hello there you"))
    display.message(2, Partial(seq=1, start_s=0, end_s=1, stable="and hello", text="and hello there you"))
    assert out.getvalue().split(CLEAR)[1:] == [
        f"0:01.0 hello{DIM} there you{SOLID}",
        "0:01.0 hello there you",
        f"…0 and hello{DIM} there you{SOLID}",
    ]


def test_a_final_stands_above_the_segment_that_is_spoken_already() -> None:
    out = io.StringIO()
    display = TextDisplay(out, out, lambda: 80)
    display.message(1, Partial(seq=1, start_s=2.5, end_s=4, text="and then"))
    display.message(2, Final(seq=2, start_s=0, end_s=2, speech_start_s=0.5, speech_end_s=1.5, text="Well.", last=False))
    live = f"{CLEAR}0:04.0 {DIM}and then{SOLID}"
    assert out.getvalue() == f"{live}{CLEAR}[0:00.5 - 0:01.5] Well.\n{live}"
    display.message(3, Final(seq=3, start_s=2, end_s=4.5, text="", last=True))
    assert out.getvalue().endswith(f"{live}{CLEAR}"), "nothing more was said, and no line says so"


def test_the_live_line_never_wraps_and_shows_the_tail(rng: random.Random) -> None:
    words = ["word", "字幕", "naïve", "e\u0301", "café", "🙂"]
    for _ in range(300):
        text = " ".join(rng.choice(words) for _ in range(rng.randrange(1, 60)))
        cells = rng.randrange(2, 90)
        shown = tail(text, cells)
        assert cell_len(shown) <= cells
        assert text.endswith(shown.removeprefix("…"))
        assert (shown == text) == (cell_len(text) <= cells)
        if shown != text:
            assert cell_len(shown) >= cells - 2, "as much as fits"


def test_without_a_terminal_there_are_plain_lines() -> None:
    out, errors = io.StringIO(), io.StringIO()
    display = TextDisplay(out, errors, None)
    display.message(1, PARTIAL)
    words = (
        Word(text=" Hello", start_s=0.3, end_s=0.6, probability=0.9),
        Word(text=" there", start_s=0.75, end_s=1, probability=1),
    )
    display.message(2, FINAL.model_copy(update={"words": words}))
    display.message(3, Partial(seq=3, start_s=62, end_s=63, stable="all is", text="all is well"))
    display.message(3, FINAL.model_copy(update={"text": ""}))
    display.message(4, Error(code="no_worker", message="no worker is alive", fatal=False, retry_after_s=5))
    assert out.getvalue().splitlines() == [
        "~ hello there",
        "[0:00.0 - 1:02.0] Hello there.",
        "    Hello@0.30 there@0.75",
        "~ all is | well",
    ]
    assert errors.getvalue() == "note from the service (no_worker): no worker is alive\n"
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("text", ["", "  ", "\x1b"])
def test_a_partial_without_words_is_no_line_but_empties_the_live_line(text: str) -> None:
    plain, live = io.StringIO(), io.StringIO()
    wordless = Partial(seq=2, start_s=0, end_s=2, text=text)
    for display in (TextDisplay(plain, plain, None), TextDisplay(live, live, lambda: 80)):
        for message in (wordless, PARTIAL, wordless):
            display.message(1, message)
    assert plain.getvalue() == "~ hello there\n"
    assert live.getvalue().endswith(f"hello there{SOLID}{CLEAR}0:02.0 ")


def test_silence_is_said_once() -> None:
    out = io.StringIO()
    display = TextDisplay(out, out, None)
    display.message(1, FINAL.model_copy(update={"text": "", "last": False}))
    display.message(2, FINAL.model_copy(update={"text": ""}))
    assert out.getvalue() == "[0:00.0 - 1:02.0] (nothing said)\n"


def test_a_transcript_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\r\nb\u202ec\x00") == "a [2J  b c"


MESSAGES = {
    type(message): message
    for message in (
        Ready(session="s", limits=LIMITS, token="t", resume_s=30, received_s=5.5, resumed=True),
        PARTIAL,
        FINAL.model_copy(update={"timing": Timing(queue_ms=3, decode_ms=40, audio_s=62)}),
        Ack(received_s=7.25),
        Status(lag_s=2, partial_interval_s=3),
        Done(audio_s=62, finals=1),
        Error(code="overloaded", message="full", fatal=True, retry_after_s=5),
    )
}


@pytest.mark.parametrize("kind", get_args(ServerMessage), ids=lambda kind: kind.__name__)
def test_json_lines_are_the_message_as_it_came_and_the_time_of_arrival(kind: type[ServerMessage]) -> None:
    out, message = io.StringIO(), MESSAGES[kind]
    JsonDisplay(out, out).message(1.23456, message)
    line = json.loads(out.getvalue())
    sent = json.loads(encode(message))
    assert line == {**sent, "at_s": 1.235}
    added = line.keys() - sent.keys()
    for other in get_args(ServerMessage) + get_args(ClientMessage):
        assert not added & other.model_fields.keys(), "a message's own field is written over"


def test_json_lines_of_the_client_itself_are_of_no_type_of_the_protocol() -> None:
    out, errors = io.StringIO(), io.StringIO()
    display = JsonDisplay(out, errors)
    display.lost(1.23456, NoAnswer("a pong", 20))
    display.summary("failed: why", {"exit_status": 4})
    lost, summary = (json.loads(line) for line in out.getvalue().splitlines())
    assert lost == {"type": "connection_lost", "reason": str(NoAnswer("a pong", 20)), "at_s": 1.235}
    assert summary == {"type": "summary", "exit_status": 4}
    assert errors.getvalue() == "failed: why\n"
    own = {lost["type"], summary["type"]}
    assert not own & {kind.model_fields["type"].default for kind in get_args(ServerMessage)}


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00.0"), (59.96, "1:00.0"), (61.25, "1:01.2"), (3600, "60:00.0")])
def test_times(seconds: float, shown: str) -> None:
    assert clock_time(seconds) == shown
