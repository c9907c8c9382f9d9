"""A full disk under the metrics' folder: workers decode and streams are served, and the log says what is missing."""

from __future__ import annotations

import json
import random
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from queueing.job_queue import QueueLimits
from queueing.local_redis import free_port
from tests.support.live_api import LiveApi
from tests.support.workers import desk_at, noise_pcm, worker_process

FOLDER = "metrics"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own without a free page."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"needs the right to mount: {mount.stderr.strip()}")
    try:
        (disk / FOLDER).mkdir()
        with pytest.raises(OSError, match="No space left"):
            (disk / "fill").write_bytes(bytes(2 << 20))
        yield disk / FOLDER
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def unusable_folder(tmp_path: Path) -> Path:
    """Where nobody may mount: a place in which no file can be made."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / FOLDER


@pytest.mark.parametrize("place", ["full_disk", "unusable_folder"])
def test_a_worker_decodes_on(
    place: str, request: pytest.FixtureRequest, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    folder: Path = request.getfixturevalue(place)
    port = free_port()
    with desk_at(redis_url, QueueLimits()) as desk:
        script = {"base_s": 0, "per_audio_s": 0}
        with worker_process(redis_url, tmp_path, script, prometheus_dir=folder, worker_metrics_port=port) as worker:
            worker.await_ready(desk.queue)
            desk.final("s1", noise_pcm(rng, 1))
            desk.await_deliveries(1)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                assert "hearline_worker_jobs_total" in answer.read().decode()
            lines = [json.loads(line) for line in worker.text().splitlines() if "metrics_not_shared" in line]
            assert [line["folder"] for line in lines] == [str(folder)]
            assert "PROMETHEUS_MULTIPROC_DIR" in lines[0]["advice"]
        desk.queue.cancel_session("s1")
    assert not folder.is_dir() or list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["full_disk", "unusable_folder"])
def test_a_web_process_serves_on(place: str, request: pytest.FixtureRequest, redis_url: str) -> None:
    folder: Path = request.getfixturevalue(place)
    with LiveApi(redis_url, metrics_dir=folder) as api:
        status, body = api.get("/metrics")
        assert status == 200
        assert "hearline_streams_active 0.0" in body.decode()
    lines = [json.loads(line) for line in api.log if "metrics_not_shared" in line]
    assert [line["folder"] for line in lines] == [str(folder)]
    assert not folder.is_dir() or list(folder.iterdir()) == []
