"""What a worker tells of itself: its heartbeat's record and its metrics."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from queueing.job_queue import QueueLimits
from queueing.local_redis import free_port
from tests.support.eventually import eventually
from tests.support.workers import Desk, desk_at, noise_pcm, worker_process

LIMITS = QueueLimits()


@pytest.fixture
def desk(redis_url: str) -> Iterator[Desk]:
    with desk_at(redis_url, LIMITS) as desk:
        yield desk
        desk.queue.cancel_session("s1")


def read(exposition: str) -> dict[tuple[str, str], float]:
    """Samples by name and their kind or found label."""
    return {
        (sample.name, sample.labels.get("kind") or sample.labels.get("found") or ""): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_a_worker_describes_itself_and_measures_what_it_does(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    port = free_port()
    shared = tmp_path / "metrics"
    shared.mkdir()
    desk.queue.set_policy("hrrn")
    with worker_process(
        redis_url,
        tmp_path,
        {"base_s": 0.3, "per_audio_s": 0},
        prometheus_dir=shared,
        worker_metrics_port=port,
        max_batch=2,
    ) as worker:
        worker.await_ready(desk.queue)
        (record,) = desk.queue.workers()
        assert record.info["model"] == "scripted"
        assert (record.info["pid"], record.info["max_batch"]) == (worker.pid, 2)
        assert {"host", "version", "device", "compute_type", "threads", "last_decode_ms", "decodes"} <= set(record.info)
        desk.final("s1", noise_pcm(rng, 2))
        (delivery,) = desk.await_deliveries(1)
        assert delivery.decode_ms >= 300
        eventually(
            lambda: read(_fetch(port)).get(("hearline_worker_jobs_total", "final")) == 1, what="the count of the job"
        )
        samples = read(_fetch(port))
        assert samples["hearline_decode_seconds_count", "final"] == 1
        assert samples["hearline_decode_seconds_sum", "final"] >= 0.3
        assert samples["hearline_real_time_factor_sum", "final"] == pytest.approx(
            samples["hearline_decode_seconds_sum", "final"] / 2
        )
        assert samples["hearline_batch_size_sum", "final"] == 1
        assert samples["hearline_worker_decoded_audio_seconds_total", "final"] == pytest.approx(2)
        assert samples["hearline_queue_wait_seconds_count", "final"] == 1
        assert samples["hearline_claim_seconds_count", "jobs"] == 1
        assert samples["hearline_claim_seconds_count", "none"] >= 1
        assert samples["hearline_complete_seconds_count", ""] == 1
        assert samples["hearline_lease_losses_total", ""] == 0
        assert samples["hearline_worker_resident_bytes", ""] > 1e7
        assert samples["hearline_worker_threads", ""] >= 4

    together = CollectorRegistry()
    MultiProcessCollector(together, path=str(shared))  # type: ignore[no-untyped-call]
    exposition = generate_latest(together).decode()
    assert 'hearline_decode_seconds_count{kind="final",policy="hrrn"} 1.0' in exposition


def _fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())
