"""`hearline stream` and `hearline load` over lost connections: what they show, and how they end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loadgen.clips import load_clip
from loadgen.load_command import load
from loadgen.stream_command import stream
from tests.support.fake_service import fake_service, refusal_body
from tests.support.resumable_service import Loss, front_end, resumable_service, text_of

SAMPLES = Path(__file__).resolve().parents[1] / "data"
SAMPLE = SAMPLES / "sample.flac"
NO_SERVICE: dict[str, str | None] = {"HEARLINE_URL": None, "HEARLINE_STATE_DIR": "/nonexistent"}
"""Nothing is found that was not named."""


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(stream, [str(SAMPLE), "--speed", "0", *arguments], env={**NO_SERVICE, **environment})


def summary(result: Result) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return fields


def test_a_loss_is_shown_and_the_captions_are_those_of_an_undisturbed_stream(rng: random.Random) -> None:
    audio = load_clip(SAMPLE, pytest.fail)
    with resumable_service(rng, Loss(50, "eof"), Loss(20, "restart")) as (running, _service):
        result = run("--url", running.url)
    finals = [line.partition("] ")[2] for line in result.stdout.splitlines() if line.startswith("[")]
    assert (result.exit_code, " ".join(finals)) == (0, text_of(audio))
    assert result.stderr.count("reconnecting: ") == result.stderr.count("connected again; the stream goes on\n") == 2
    assert "; the connection broke 2 times, " in result.stderr.splitlines()[-1]


def test_json_has_the_losses_among_the_messages_and_in_the_summary(rng: random.Random) -> None:
    with resumable_service(rng, Loss(50, "eof")) as (running, _service):
        result = run("--url", running.url, "--json")
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    (lost,) = (each for each in messages if each["type"] == "connection_lost")
    assert "the connection broke" in lost["reason"]
    assert messages[messages.index(lost) + 1].items() >= {"type": "ready", "resumed": True}.items()
    fields = summary(result)
    assert (result.exit_code, fields["resumes"], fields["sent_s"]) == (0, 1, fields["audio_s"])
    assert fields["resume_gap_s"] > 0
    assert not any(each["type"] == "ack" for each in messages)


@pytest.mark.parametrize("way", ["twice", "comma", "environment"])
def test_several_urls_are_the_front_ends_of_one_service(way: str, rng: random.Random) -> None:
    with resumable_service(rng, Loss(50, "eof")) as (first, service), front_end(service) as second:
        service.on_loss = lambda: setattr(first, "refuse", (503, {}, refusal_body()))
        both = f"{first.url}, {second.url}"
        match way:
            case "twice":
                result = run("--url", first.url, "--url", second.url, "--json")
            case "comma":
                result = run("--url", both, "--json")
            case _:
                result = run("--json", HEARLINE_URL=both)
    assert (result.exit_code, summary(result)["resumes"]) == (0, 1)
    assert len(second.seen) == 1


def test_with_no_resume_a_loss_is_status_4(rng: random.Random) -> None:
    with resumable_service(rng, Loss(50, "eof")) as (running, service):
        result = run("--url", running.url, "--no-resume", "--json")
    assert (result.exit_code, summary(result)["outcome"], summary(result)["resumes"]) == (4, "failed", 0)
    assert len(service.openings) == 1


def test_a_service_that_does_not_take_the_stream_back_is_status_4_and_says_why(rng: random.Random) -> None:
    with resumable_service(rng, Loss(50, "eof")) as (running, service):
        service.on_loss = service.streams.clear
        result = run("--url", running.url, "--json")
    assert (result.exit_code, summary(result)["error"]["code"]) == (4, "resume_refused")
    assert "no such stream" in result.stderr


def test_a_load_run_counts_losses_and_spreads_its_streams_over_the_front_ends(rng: random.Random) -> None:
    with resumable_service(rng, *[Loss(40, "eof")] * 3) as (first, service), front_end(service) as second:
        arguments = ("--streams", "4", "--arrivals", "synchronized", "--speed", "30", "--speech", str(SAMPLES))
        result = CliRunner().invoke(load, [*arguments, "--json", "--url", f"{first.url},{second.url}"], env=NO_SERVICE)
    fields = json.loads(result.stdout)
    assert (result.exit_code, fields["streams"]["done"], fields["resumes"]) == (0, 4, 3)
    assert fields["resume_gap_ms"]["count"] == 3
    assert fields["finals"]["exactly_once_in_order"]
    assert sum(len(each["resume_gap_ms"]) for each in fields["each"]) == 3
    assert fields["settings"]["url"] == f"{first.url},{second.url}"
    assert len(first.seen) >= 2
    assert len(second.seen) >= 2


@pytest.mark.parametrize("urls", [",", "ws://a,ftp://b"])
def test_a_list_with_what_is_no_url_is_wrong_usage(urls: str) -> None:
    assert run("--url", urls).exit_code == 2


def test_the_first_front_end_that_answers_is_taken() -> None:
    with fake_service(refuse=(503, {}, refusal_body())) as full, fake_service() as free:
        assert run("--url", full.url, "--url", free.url).exit_code == 0
        assert run("--url", full.url, "--url", full.url).exit_code == 3
