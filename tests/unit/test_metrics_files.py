"""Room for the files of shared metrics: enough for all that a process ever says, or none of them."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, values
from structlog.testing import capture_logs

import api.metrics
import workers.metrics
from queueing.metrics_files import GAUGES_BYTES, files_of, share_metrics
from queueing.policies import POLICIES

OTHER_VALUES = 32
"""More than any label but kind and policy has: error codes, operations, reasons."""
OUTCOMES = 8
"""More than what may become of a job."""


@pytest.fixture
def multiprocess(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of a process in which prometheus-client shares metrics."""
    shared = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(values, "ValueClass", shared)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    yield tmp_path
    shared.close_all_files()


def say_everything(metrics: object) -> None:
    """Make each metric with every kind and policy, and many values of the other labels."""
    for metric in vars(metrics).values():
        names: Sequence[str] = getattr(metric, "_labelnames", ())
        others = 1 if set(names) <= {"kind", "policy", "found"} else OUTCOMES if "policy" in names else OTHER_VALUES
        for kind in ("partial", "final") if names else ():
            for policy in POLICIES:
                for number in range(others):
                    known = {"kind": kind, "policy": policy, "found": kind}
                    metric.labels(*(known.get(name, f"a_rather_long_value_{number}") for name in names))


@pytest.mark.parametrize("program", ["web", "worker"])
def test_no_file_ever_has_to_grow(multiprocess: Path, program: str) -> None:
    modes = api.metrics.GAUGE_MODES if program == "web" else workers.metrics.GAUGE_MODES
    assert share_metrics(str(multiprocess), modes)
    registry = CollectorRegistry()
    if program == "web":
        say_everything(api.metrics.StreamMetrics(registry))
        say_everything(api.metrics.KeyMetrics(registry))
    else:
        say_everything(workers.metrics.WorkerMetrics(registry))
    expected = files_of(os.getpid(), modes)
    assert {file.name: file.stat().st_size for file in multiprocess.iterdir()} == expected
    for name, size in expected.items():
        status = (multiprocess / name).stat()
        assert status.st_blocks * 512 >= size, "a file of holes"
        (used,) = struct.unpack_from("i", (multiprocess / name).read_bytes())
        assert 8 < used < size


def test_what_an_earlier_process_of_this_id_has_counted_stays(multiprocess: Path) -> None:
    file = multiprocess / f"gauge_livesum_{os.getpid()}.db"
    file.write_bytes(b"counted")
    assert share_metrics(str(multiprocess), ["livesum"])
    assert file.read_bytes() == b"counted".ljust(GAUGES_BYTES, b"\0")


def test_without_room_for_all_there_is_none_and_metrics_stay_in_memory(
    multiprocess: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = multiprocess / f"counter_{os.getpid()}.db"
    earlier.write_bytes(bytes(65_536))
    allocate = os.posix_fallocate

    def full(descriptor: int, offset: int, size: int) -> None:
        if size <= GAUGES_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with capture_logs() as lines:
        assert not share_metrics(str(multiprocess), ["livesum", "livemax"])
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("metrics_not_shared", "warning")
    assert line["folder"] == str(multiprocess)
    assert line["reason"] == "No space left on device"
    assert line["needed_bytes"] == sum(files_of(0, ["livesum", "livemax"]).values())
    assert list(multiprocess.iterdir()) == [earlier]
    registry = CollectorRegistry()
    Counter("kept", "In memory.", registry=registry).inc(3)
    assert registry.get_sample_value("kept_total") == 3
    assert list(multiprocess.iterdir()) == [earlier]


def test_sharing_nothing_is_no_fault(multiprocess: Path) -> None:
    with capture_logs() as lines:
        assert not share_metrics("", ["livesum"])
    assert lines == []
    assert list(multiprocess.iterdir()) == []


def test_a_folder_that_cannot_be_is_told(multiprocess: Path) -> None:
    (multiprocess / "file").touch()
    with capture_logs() as lines:
        assert not share_metrics(str(multiprocess / "file" / "folder"), ["livesum"])
    assert [line["reason"] for line in lines] == ["Not a directory"]
