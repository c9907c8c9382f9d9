"""`hearline load` against a fake service: concurrent streams, their report, and faults of the service."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from websockets.sync.server import ServerConnection

from loadgen.load_command import default_speech, load
from sessions.wire import Error
from tests.support.fake_service import Seen, behave, fake_service, read_start, refusal_body, send

SAMPLES = Path(__file__).resolve().parents[1] / "data"


def run(url: str, *arguments: str, status: int = 0) -> dict[str, Any]:
    command = ["--speech", str(SAMPLES), "--max-clip-s", "20", "--speed", "100", "--json", "--url", url, *arguments]
    result = CliRunner().invoke(load, command)
    assert result.exit_code == status, result.output
    fields: dict[str, Any] = json.loads(result.stdout)
    return fields


def test_streams_run_at_the_same_time_and_all_are_reported() -> None:
    together = threading.Barrier(8, timeout=30)

    def meet(connection: ServerConnection, seen: Seen) -> None:
        together.wait()  # passes only when eight streams are open at once
        behave(connection, seen)

    with fake_service(meet) as service:
        fields = run(service.url, "--streams", "8", "--arrivals", "synchronized", "--seed", "7")
    assert fields["streams"]["by_outcome"] == {"done": 8}
    assert fields["settings"]["seed"] == 7
    assert fields["environment"]["cores"] >= 1
    assert fields["finals"]["exactly_once_in_order"]
    assert fields["final_latency_ms"]["count"] == 8
    assert fields["partials_per_stream"]["mean"] == 10
    assert fields["audio_s"] == pytest.approx(8 * 10.275, abs=0.01)
    assert len(fields["each"]) == 8
    assert len({seen.audio for seen in service.seen}) == 1
    assert fields["alone"] is None


def test_with_a_duration_streams_keep_coming() -> None:
    with fake_service() as service:
        fields = run(service.url, "--streams", "1", "--arrivals", "staggered", "--duration", "0.35", "--no-partials")
    # At a hundred times the speed a clip of 10.275 s takes 0.103 s.
    assert fields["streams"]["by_outcome"] == {"done": 4}
    assert [round(stream["at_s"], 2) for stream in fields["each"]] == [0, 0.1, 0.21, 0.31]


def test_texts_are_compared_with_those_decoded_alone() -> None:
    count = threading.Semaphore(2)

    def forgetful(connection: ServerConnection, seen: Seen) -> None:
        loaded = count.acquire(blocking=False)
        behave(connection, seen, text=lambda _audio: "under load" if loaded else "alone")

    with fake_service(forgetful) as service:
        fields = run(service.url, "--streams", "2", "--alone", status=4)
    assert fields["alone"]["compared"] == 2
    assert fields["alone"]["different"][0] == {"clip": "sample.flac", "text": "under load", "alone": "alone"}
    with fake_service() as service:
        fields = run(service.url, "--streams", "2", "--alone")
    assert (fields["alone"]["equal"], fields["alone"]["different"]) == (2, [])
    assert len(service.seen) == 3, "a clip that is played twice is decoded alone once"


def test_refusals_and_failures_are_counted_by_kind() -> None:
    with fake_service(refuse=(503, {}, refusal_body())) as service:
        fields = run(service.url, "--streams", "3", status=3)
    assert fields["streams"]["by_error"] == {"overloaded": 3}

    def fail(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        send(connection, Error(code="internal", message="a fault", fatal=True))
        connection.close(1011)

    with fake_service(fail) as service:
        fields = run(service.url, "--streams", "3", status=4)
    assert fields["streams"]["by_error"] == {"internal": 3}
    fields = run(service.url, "--streams", "2", status=5)
    assert (fields["streams"]["by_outcome"], fields["finals"]["exactly_once_in_order"]) == ({"unreachable": 2}, None)


def test_a_picture_is_drawn_where_matplotlib_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with fake_service() as service:
        run(service.url, "--streams", "2", "--plot", str(tmp_path / "latency.svg"))
    assert b"final after the last sound" in (tmp_path / "latency.svg").read_bytes()


def test_without_a_folder_the_bundled_samples_are_played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEARLINE_SPEECH", raising=False)
    monkeypatch.chdir(tmp_path)
    with fake_service() as service:
        result = CliRunner().invoke(load, ["--streams", "2", "--speed", "100", "--json", "--url", service.url])
    assert result.exit_code == 0, result.output
    fields = json.loads(result.stdout)
    assert fields["settings"]["speech"] == str(SAMPLES)
    assert {stream["clip"] for stream in fields["each"]} == {"sample.flac", "pauses.flac"}
    assert fields["word_error_rate"] is not None, "their texts are the references"


def test_the_environment_names_the_folder_and_without_any_the_option_is_asked_for(tmp_path: Path) -> None:
    assert default_speech({"HEARLINE_SPEECH": "/talks"}) == Path("/talks")
    assert default_speech({"HEARLINE_SPEECH": ""}) == SAMPLES
    with pytest.raises(click.UsageError, match="HEARLINE_SPEECH"):
        default_speech({}, tmp_path / "absent")
    told = " ".join(CliRunner().invoke(load, ["--help"]).stdout.split())
    assert "unless --speech or HEARLINE_SPEECH gives a folder of recordings" in told


@pytest.mark.parametrize(
    "arguments", [("--speech", "."), ("--speech", str(SAMPLES), "--streams", "0"), ("--speech", "/nonexistent")]
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(load, [*arguments])
    assert result.exit_code == 2
    assert result.stderr
