"""What a worker accepts from its environment, and how it refuses the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from queueing.errors import SettingsError
from workers.settings import WorkerSettings


def test_the_defaults_need_nothing() -> None:
    settings = WorkerSettings.from_env({})
    assert (settings.model, settings.device, settings.compute_type, settings.threads) == (
        "bundled",
        "auto",
        "default",
        0,
    )
    assert (settings.partial_beam, settings.final_beam, settings.max_batch, settings.max_batch_ms) == (1, 5, 8, 500)
    assert settings.audio_cache_bytes == 64 * 1024 * 1024
    assert settings.transcriber == "whisper"
    assert settings.worker_metrics_port is None


def test_values_come_from_the_environment() -> None:
    settings = WorkerSettings.from_env(
        {
            "HEARLINE_MODEL": "base.en",
            "HEARLINE_MODEL_DIR": "/srv/models",
            "HEARLINE_THREADS": "3",
            "HEARLINE_LANGUAGE": "de",
            "HEARLINE_LEASE_S": "2.5",
            "HEARLINE_WORKER_METRICS_PORT": "9100",
            "UNRELATED": "x",
        }
    )
    assert settings.model == "base.en"
    assert settings.model_dir == Path("/srv/models")
    assert (settings.threads, settings.language, settings.lease_s) == (3, "de", 2.5)
    assert settings.worker_metrics_port == 9100


def test_every_wrong_value_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        WorkerSettings.from_env(
            {
                "HEARLINE_DEVICE": "gpu",
                "HEARLINE_FINAL_BEAM": "0",
                "HEARLINE_MAX_DECODE_S": "soon",
                "HEARLINE_THREADS": "-1",
            }
        )
    names = {problem.name for problem in caught.value.problems}
    assert names == {"HEARLINE_DEVICE", "HEARLINE_FINAL_BEAM", "HEARLINE_MAX_DECODE_S", "HEARLINE_THREADS"}
    assert "'gpu'" in str(caught.value)


def test_a_script_without_the_scripted_transcriber_is_refused() -> None:
    with pytest.raises(SettingsError, match="HEARLINE_TRANSCRIBER=scripted"):
        WorkerSettings.from_env({"HEARLINE_SCRIPT": "table.json"})


def test_every_setting_says_what_it_means() -> None:
    assert all(row.meaning and row.name.startswith(("HEARLINE_", "REDIS_URL")) for row in WorkerSettings.rows())
