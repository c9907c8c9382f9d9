"""`hearline stream`: one stream from a file, a pipe, the microphone or a synthetic signal, with live captions."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from loadgen import client
from loadgen.clips import BYTES_PER_SECOND, ClipError, Warn, read_clip
from loadgen.display import Display, JsonDisplay, TextDisplay
from loadgen.errors import ClientError
from loadgen.options import (
    API_KEY_VARIABLE,
    api_key_option,
    decoding_options,
    service_options,
    service_urls,
    start_message,
)
from loadgen.outcome import EXIT_STATUS_HELP, outcome_of, summary_fields, summary_line
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming
from loadgen.sources import microphone, primed, read_stream, synthetic
from queueing.clock import SystemClock
from sessions.wire import ServerMessage


@click.command("stream", epilog=EXIT_STATUS_HELP, context_settings={"max_content_width": 100})
@click.argument("file", required=False)
@click.option(
    "--synthetic",
    "synthetic_s",
    type=float,
    metavar="S",
    help="Send S seconds of a test signal, for load and limits: it holds no words, and its text means nothing.",
)
@click.option("--mic", is_flag=True, help="Send the microphone (needs the package sounddevice); Ctrl-C ends.")
@service_options
@api_key_option
@click.option(
    "--speed", type=click.FloatRange(0, 1000), default=1.0, show_default=True,
    help="1 is real time, 2 twice as fast, 0 as fast as the service takes it.",
)  # fmt: skip
@decoding_options
@click.option("--words", is_flag=True, help="Show when each word of a final was said.")
@click.option(
    "--json", "as_json", is_flag=True,
    help="One JSON object per server message, with at_s (when it came: seconds since the stream began, by this "
    "machine's clock); then a summary object.",
)  # fmt: skip
@click.option(
    "--frame-ms", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Audio in one message."
)
def stream(
    file: str | None,
    synthetic_s: float | None,
    mic: bool,
    given_urls: tuple[str, ...],
    no_resume: bool,
    api_key: str | None,
    speed: float,
    words: bool,
    as_json: bool,
    frame_ms: int,
    **decoding: Any,
) -> None:
    """Stream FILE (any audio file, or - for standard input) to a running service and show live captions.

    Words that will not change any more are shown as they are, the newest guesses dimmed; a pause ends a segment, and
    its final text stands on a line of its own. The last final ends the stream. A connection that breaks is opened
    again, at any of the URLs, and the stream goes on where it was.

    Where standard output is no terminal, guesses are lines that begin with ~, and | ends the words that will not
    change.

    Standard input may be raw 16 kHz mono PCM16 or any audio file that can be read without seeking. With - and
    --mic, Ctrl-C ends the sound and waits for the final transcript; a second one interrupts. SIGTERM does the same.
    """
    if (file is not None) + (synthetic_s is not None) + mic != 1:
        raise click.UsageError("give exactly one of FILE (or -), --synthetic S and --mic")
    urls = service_urls(given_urls, environment())
    start = start_message(words=words, **decoding)
    display = make_display(as_json)
    warnings: list[str] = []
    recorder = Recorder()
    ended_by: BaseException | None = None
    stop = threading.Event()
    try:
        with first_interrupt_sets(stop, when=mic or file == "-"), termination_interrupts():
            audio = primed(open_source(file, synthetic_s, mic, partial(_warn, display, warnings)))
            if mic:
                display.note("listening; Ctrl-C ends")
            client.stream(
                urls, audio, start,
                clock=SystemClock(), sending=client.Sending(speed, frame_ms * BYTES_PER_SECOND // 1000),
                resuming=Resuming(enabled=not no_resume), rng=random.Random(),
                on_message=partial(_show, display, recorder), on_lost=partial(_show_loss, display, recorder),
                stop=stop, recorder=recorder, api_key=api_key or environment().get(API_KEY_VARIABLE),
            )  # fmt: skip
    except (ClipError, ClientError, KeyboardInterrupt) as caught:
        ended_by = caught
    outcome = outcome_of(recorder, ended_by, warnings)
    display.summary(summary_line(recorder, outcome), summary_fields(recorder, outcome))
    click.get_current_context().exit(outcome.status)


def environment() -> Mapping[str, str]:
    """The environment that the composition root passed on; this command's own when it is run by itself."""
    return getattr(click.get_current_context().obj, "environment", None) or os.environ  # noqa: TID251


def open_source(file: str | None, synthetic_s: float | None, mic: bool, warn: Warn) -> Iterator[bytes]:
    """The audio that the command line asks for; raises `ClipError` when used."""
    if mic:
        return microphone()
    if synthetic_s is not None:
        return synthetic(synthetic_s)
    if file == "-":
        if sys.stdin.isatty():
            raise ClipError("-", "standard input is a terminal; pipe audio into it, or use --mic")
        # Unbuffered: live sound must not wait for a full buffer, and no lock is held while the sender reads.
        return read_stream(open(sys.stdin.fileno(), "rb", buffering=0, closefd=False), warn)
    return read_clip(Path(file or ""), warn)


def make_display(as_json: bool) -> Display:
    """The display for this terminal, pipe or file."""
    out: TextIO = sys.stdout
    for text in (sys.stdout, sys.stderr):
        if hasattr(text, "reconfigure"):
            text.reconfigure(errors="replace")  # a transcript may hold what the terminal's encoding lacks
    if as_json:
        return JsonDisplay(out, sys.stderr)
    terminal = out.isatty() and environment().get("TERM") != "dumb"
    return TextDisplay(out, sys.stderr, (lambda: shutil.get_terminal_size().columns) if terminal else None)


@contextmanager
def first_interrupt_sets(stop: threading.Event, *, when: bool) -> Iterator[None]:
    """The first Ctrl-C sets ``stop``, the second one interrupts (only ``when``)."""
    if not when:
        yield
        return

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            signal.default_int_handler(number, frame)
        stop.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does at the time: a client that is stopped leaves its server properly, too."""

    def handle(number: int, frame: Any) -> None:  # noqa: ARG001
        interrupt = signal.getsignal(signal.SIGINT)
        # Where Ctrl-C is ignored (a shell's background job), SIGTERM is not.
        (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _show(display: Display, recorder: Recorder, at: float, message: ServerMessage) -> None:
    display.message(at - recorder.started_at, message)


def _show_loss(display: Display, recorder: Recorder, at: float, failure: ClientError) -> None:
    display.lost(at - recorder.started_at, failure)


def _warn(display: Display, warnings: list[str], text: str) -> None:
    warnings.append(text)
    display.note(f"warning: {text}")
