"""`hearline stream` from the command line: sources, displays, exit status per outcome."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from websockets.sync.server import ServerConnection

from loadgen.clips import load_clip
from loadgen.stream_command import stream
from sessions.wire import Done, Error, Final, Partial, Start
from tests.support.eventually import eventually
from tests.support.fake_service import FakeService, Seen, fake_service, read_start, refusal_body, send

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "sample.flac"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as running:
        yield running


def run(*arguments: str, url: str | None = None, env: dict[str, str] | None = None) -> Result:
    environment: dict[str, str | None] = {"HEARLINE_URL": None, "HEARLINE_STATE_DIR": "/nonexistent", **(env or {})}
    return CliRunner().invoke(stream, [*arguments, *(("--url", url) if url else ())], env=environment)


def start(*arguments: str, url: str, **options: Any) -> subprocess.Popen[bytes]:
    code = "from loadgen.stream_command import stream; stream()"
    return subprocess.Popen([sys.executable, "-c", code, *arguments, "--url", url], cwd=ROOT, **options)


def summary(result: Result) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert fields["type"] == "summary"
    assert fields["exit_status"] == result.exit_code
    return fields


def test_a_file_becomes_captions_and_a_summary(service: FakeService) -> None:
    result = run(str(SAMPLE), "--speed", "0", url=service.url)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "[0:00.0 - 0:10.3] 328802 bytes"
    assert result.stdout.startswith("~ so far\n")
    assert result.stderr.startswith("10.3 s of audio; final ")
    assert "3 ms in the queue, 40 ms decoding; 10 partials" in result.stderr
    assert service.seen[0].audio == load_clip(SAMPLE, pytest.fail)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["Hello.", "there"], "4.0 s of audio in 2 finals; "),
        (["Hello.", ""], "4.0 s of audio in 2 finals, 1 of them without words; "),
        (["", "\x1b", "there"], "6.0 s of audio in 3 finals, 2 of them without words; "),
        (["", " "], "4.0 s of audio in 2 finals, none of them with words; "),
        ([""], "2.0 s of audio; "),
    ],
)
def test_the_summary_counts_the_finals_that_no_line_shows(texts: list[str], told: str) -> None:
    def say(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        while not isinstance(connection.recv(), str):
            pass
        for seq, text in enumerate(texts, 1):
            last = seq == len(texts)
            send(connection, Final(seq=seq, start_s=2 * seq - 2, end_s=2 * seq, text=text, last=last))
        send(connection, Done(audio_s=2 * len(texts), finals=len(texts)))
        connection.close(1000)

    with fake_service(say) as service:
        result = run("--synthetic", str(2 * len(texts)), "--speed", "0", url=service.url)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith(told)
    lines = [line for line in result.stdout.splitlines() if "(nothing said)" not in line]
    wordless = len(texts) - len(lines)
    assert wordless == sum(not text.strip(" \x1b") for text in texts)


def test_every_mark_of_the_plain_lines_is_explained() -> None:
    def mark(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        for seq, (stable, text) in enumerate([("", ""), ("", "so"), ("so", "so far"), ("so far", "so far")], 1):
            send(connection, Partial(seq=seq, start_s=0, end_s=seq, stable=stable, text=text))
        while not isinstance(connection.recv(), str):
            pass
        send(connection, Final(seq=5, start_s=0, end_s=4, text="So far.", last=True), Done(audio_s=4, finals=1))
        connection.close(1000)

    with fake_service(mark) as service:
        result = run("--synthetic", "4", "--speed", "0", url=service.url)
    assert result.stdout.splitlines() == ["~ so", "~ so | far", "~ so far |", "[0:00.0 - 0:04.0] So far."]
    told = " ".join(run("--help").stdout.split())
    assert "lines that begin with ~, and | ends the words that will not change" in told


def test_json_is_one_object_per_message_and_a_summary(service: FakeService) -> None:
    result = run("--synthetic", "2.5", "--speed", "0", "--json", "--frame-ms", "20", url=service.url)
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [message["type"] for message in messages] == ["ready", "partial", "partial", "final", "done", "summary"]
    fields = summary(result)
    assert (fields["outcome"], fields["audio_s"], fields["close_code"], fields["error"]) == ("done", 2.5, 1000, None)
    assert (fields["text"], fields["partials"], fields["queue_ms"], fields["decode_ms"]) == ("80000 bytes", 2, 3, 40)
    assert {len(frame) for frame in service.seen[0].frames} == {640}


def test_options_reach_the_service(service: FakeService) -> None:
    options = ("--language", "de", "--words", "--no-partials", "--endpoint-ms", "500", "--task", "translate")
    said = ("--prompt", "Dear Ms Ångström,", "--hotwords", "Kiruna, Luleå")
    run("--synthetic", "1", "--speed", "0", *options, *said, url=service.url)
    run("--synthetic", "1", "--speed", "0", "--endpoint-ms", "off", "--no-resume", url=service.url)
    run("--synthetic", "1", "--speed", "0", url=service.url)
    begun, off, usual = (seen.start for seen in service.seen)
    assert begun == Start(
        language="de", words=True, partials=False, endpoint_ms=500, task="translate",
        initial_prompt="Dear Ms Ångström,", hotwords="Kiruna, Luleå", resume=True,
    )  # fmt: skip
    assert off == Start(endpoint_ms=False, resume=False)
    assert usual == Start(resume=True)


def test_the_service_is_found_by_environment_or_a_running_hearline_up(service: FakeService, tmp_path: Path) -> None:
    assert run("--synthetic", "0", env={"HEARLINE_URL": service.url}).exit_code == 0
    record = {"url": service.url.replace("ws://", "http://").removesuffix("/v1/stream"), "pid": os.getpid()}
    (tmp_path / "up.json").write_text(json.dumps(record))
    assert run("--synthetic", "0", env={"HEARLINE_STATE_DIR": str(tmp_path)}).exit_code == 0
    (tmp_path / "up.json").write_text(json.dumps({**record, "pid": max(psutil.pids()) + 100_000}))
    stale = run("--synthetic", "0", env={"HEARLINE_STATE_DIR": str(tmp_path)})
    assert "127.0.0.1:8000" in stale.output or stale.exit_code == 0, "a stale file is passed over for the default"
    assert len(service.seen) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("a.wav", "--mic"), ("a.wav", "--synthetic", "1"), ("--synthetic", "x"), ("a.wav", "--speed", "-1"),
        ("a.wav", "--language", "English"), ("a.wav", "--frame-ms", "0"), ("a.wav", "--url", "ftp://x"),
        ("a.wav", "--url", "ws://x:99999"), ("a.wav", "--endpoint-ms", "0"), ("a.wav", "--endpoint-ms", "never"),
        ("a.wav", "--task", "sing"), ("a.wav", "--prompt", "x" * 1_001), ("a.wav", "--hotwords", "x" * 501),
    ],
)  # fmt: skip
def test_wrong_usage_is_status_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_bad_input_is_status_2_and_never_reaches_the_service(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    (tmp_path / "letter.wav").write_text("Dear reader, this is no sound at all.\n")
    for name, reason in (
        ("empty.wav", "0 bytes"),
        ("letter.wav", "text file"),
        ("none.wav", "no such file"),
        ("", "directory"),
    ):
        result = run(str(tmp_path / name), "--json", url=service.url)
        assert result.exit_code == 2
        assert reason in result.stderr
        assert summary(result)["outcome"] == "bad_input"
    assert run("--synthetic", "nan", url=service.url).exit_code == 2
    assert not service.seen


def test_a_damaged_file_is_used_with_a_warning(service: FakeService, tmp_path: Path) -> None:
    cut = tmp_path / "cut.flac"
    cut.write_bytes(SAMPLE.read_bytes()[:100_000])
    result = run(str(cut), "--speed", "0", "--json", url=service.url)
    assert result.exit_code == 0
    assert "cut short" in summary(result)["warnings"][0]
    assert 3 < summary(result)["audio_s"] < 9


def test_a_refusal_is_status_3_with_its_advice() -> None:
    with fake_service(refuse=(503, {"Retry-After": "5"}, refusal_body())) as service:
        result = run("--synthetic", "1", "--json", url=service.url)
    assert result.exit_code == 3
    error = {"code": "overloaded", "retry_after_s": 5.0}
    assert summary(result)["error"].items() >= error.items()
    assert "try again in 5 s" in result.stderr


def test_nobody_there_is_status_5() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = run("--synthetic", "1", url=f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.exit_code == 5
    assert "hearline up" in result.stderr


@pytest.mark.parametrize(
    ("code", "status", "outcome"),
    [
        ("overloaded", 3, "refused"),
        ("not_pcm16", 2, "bad_input"),
        ("unsupported_language", 2, "bad_input"),
        ("inference_timeout", 4, "failed"),
        ("new", 4, "failed"),
    ],
)  # fmt: skip
def test_a_fatal_error_has_the_status_of_its_kind(code: str, status: int, outcome: str) -> None:
    def fail(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        send(connection, Error(code=code, message="because", fatal=True))
        connection.close(1011)

    with fake_service(fail) as service:
        result = run("--synthetic", "1", "--speed", "0", "--json", url=service.url)
    assert (result.exit_code, summary(result)["outcome"]) == (status, outcome)
    assert "because" in result.stderr


@pytest.mark.parametrize(("end_s", "code", "status"), [(1.0, "audio_limit", 3), (1.0, "", 4), (2.0, "", 0)])
def test_audio_that_is_in_no_final_is_never_a_success(end_s: float, code: str, status: int) -> None:
    def cover(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        while not isinstance(connection.recv(), str):
            pass
        if code:
            send(connection, Error(code=code, message="at most 1 s", fatal=False))
        final = Final(seq=1, start_s=0, end_s=end_s, text="some", last=True)
        send(connection, final, Done(audio_s=end_s, finals=1))
        connection.close(1009 if code else 1000)

    with fake_service(cover) as service:
        result = run("--synthetic", "2", "--speed", "0", "--json", url=service.url)
    assert (result.exit_code, summary(result)["text"]) == (status, "some")


def test_the_summary_says_what_the_service_took_not_what_was_sent() -> None:
    def limit(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        while not isinstance(connection.recv(), str):
            pass
        send(connection, Error(code="audio_limit", message="at most 1 s", fatal=False))
        send(connection, Partial(seq=1, start_s=0, end_s=1.0, text="so"))
        send(connection, Final(seq=2, start_s=0, end_s=1.0, text="some", last=True), Done(audio_s=1.0, finals=1))
        connection.close(1009)

    with fake_service(limit) as service:
        result = run("--synthetic", "1.6", "--speed", "0", url=service.url)
        as_json = summary(run("--synthetic", "1.6", "--speed", "0", "--json", url=service.url))
    assert result.exit_code == 3
    assert "\n1.0 s of audio; " in result.stderr
    assert "; 1 partial, the first" in result.stderr
    assert (as_json["audio_s"], as_json["sent_s"]) == (1.0, 1.6)


def test_standard_input_takes_files_and_raw_pcm(service: FakeService) -> None:
    data = load_clip(SAMPLE, pytest.fail)
    for given in (SAMPLE.read_bytes(), data):
        process = start("-", "--speed", "0", "--no-partials", url=service.url, stdin=-1, stdout=-1, stderr=-1)
        out, _errors = process.communicate(given, timeout=60)
        assert (process.returncode, out) == (0, b"[0:00.0 - 0:10.3] 328802 bytes\n")
    assert [seen.audio == data for seen in service.seen] == [True, True]


def test_an_interrupt_of_a_file_is_status_130(service: FakeService) -> None:
    process = start(str(SAMPLE), "--json", url=service.url, stdout=-1, stderr=-1)
    eventually(lambda: service.seen and service.seen[0].frames, timeout_s=30, what="the first frame")
    process.send_signal(signal.SIGINT)
    out, _errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["outcome"] == "interrupted"
    eventually(service.seen[0].closed.is_set, what="the close")


def test_an_interrupt_of_live_sound_ends_it_and_waits_for_the_final(service: FakeService) -> None:
    process = start("-", url=service.url, stdin=-1, stdout=-1, stderr=-1)
    assert process.stdin is not None
    process.stdin.write(bytes(64_000))
    process.stdin.flush()
    eventually(lambda: service.seen and service.seen[0].frames, timeout_s=30, what="the first frame")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert b"bytes" in process.stdout.readlines()[-1]
    assert process.wait(30) == 0
    process.communicate()


def test_a_terminal_gets_a_line_that_is_redrawn(service: FakeService) -> None:
    controller, terminal = pty.openpty()
    process = start(
        "--synthetic", "3", "--speed", "20", url=service.url, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    seen = b""
    try:
        while piece := os.read(controller, 4096):
            seen += piece
    except OSError:
        pass  # Linux reports the end of a terminal as an error
    os.close(controller)
    assert process.wait(30) == 0
    assert b"\r\x1b[K0:01.0 \x1b[2mso far\x1b[22m\r\x1b[K0:02.0 \x1b[2mso far\x1b[22m" in seen
    assert b"\r\x1b[K[0:00.0 - 0:03.0] 96000 bytes\r\n" in seen
