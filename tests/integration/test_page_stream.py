"""The page's own stream comes back as the other clients do; run by node where there is one that knows WebSockets."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.support.fake_service import behave, fake_service
from tests.support.resumable_service import How, Loss, resumable_service, text_of

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("--no-warnings", "--experimental-websocket", "--experimental-default-type=module")


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if (
        found is None
        or subprocess.run([found, *FLAGS, "-e", "new WebSocket('ws://x').close()"], check=False).returncode
    ):
        pytest.skip("no node that has WebSocket (20 or newer)")
    return found


def play(node: str, url: str, audio: bytes, folder: Path, every_ms: int = 5) -> dict[str, Any]:
    (folder / "audio.pcm").write_bytes(audio)
    host = url.removeprefix("ws://").partition("/")[0]
    script = ROOT / "tests" / "support" / "page_stream.js"
    ended = subprocess.run(
        [node, *FLAGS, script, host, folder / "audio.pcm", str(every_ms), ROOT / "api" / "static"],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen


@pytest.mark.parametrize("how", [how for how in get_args(How) if how != "reset"])
def test_the_page_resumes_and_has_the_text_of_an_undisturbed_stream(
    node: str, how: How, tmp_path: Path, rng: random.Random
) -> None:
    audio = rng.randbytes(2 * rng.randrange(80_000, 120_000))
    losses = (Loss(20, how, kept=rng.random()), Loss(rng.randrange(2, 12), "eof", 2), Loss(1, "eof"))
    with resumable_service(rng, *losses) as (running, service):
        seen = play(node, running.url, audio, tmp_path)
    assert seen["problem"] is None
    assert " ".join(seen["finals"]) == text_of(audio)
    assert seen["seqs"] == [*range(1, len(seen["seqs"]) + 1)]
    assert bytes(service.stream.audio) == audio
    assert seen["away"] == seen["back"] >= 2


def test_a_refused_resume_is_told(node: str, tmp_path: Path, rng: random.Random) -> None:
    with resumable_service(rng, Loss(20, "eof")) as (running, service):
        service.on_loss = service.streams.clear
        assert play(node, running.url, rng.randbytes(160_000), tmp_path)["problem"] == "no such stream"


def test_without_a_token_the_page_sends_all_and_a_loss_is_the_end(
    node: str, tmp_path: Path, rng: random.Random
) -> None:
    audio = rng.randbytes(64_000)
    with fake_service(behave) as service:
        assert play(node, service.url, audio, tmp_path)["finals"] == ["64000 bytes"]
    assert service.seen[0].audio == audio
    with resumable_service(rng, Loss(20, "eof"), token_for_clients=False) as (running, _service):
        assert "broke" in play(node, running.url, audio, tmp_path)["problem"]
