"""The decoders that the benchmark compares: faster-whisper's own ``transcribe``, and Hearline's engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from queueing.lane import Kind
from workers.bench_corpus import BenchError, Samples
from workers.calibration import Calibration
from workers.model_files import ModelFiles
from workers.transcriber import DecodeError, DecodeRequest, Transcriber

P = ParamSpec("P")
T = TypeVar("T")

LANGUAGE = "en"
"""The recordings are English; naming it spares multilingual models a detection, for both alike."""


class Engine(Protocol):
    """Something that turns pieces of audio into texts, several in one call where it can."""

    def texts(self, batch: Sequence[Samples], kind: Kind) -> list[str]:
        """One text for each piece, in order."""

    @property
    def redone(self) -> int:
        """Decodes so far that were repeated in the full window."""


class Peer:
    """`WhisperModel.transcribe` with its own defaults but the beam; what it does to a batch it does one by one."""

    def __init__(self, model: Any, beam: int) -> None:
        self._model = model
        self._beam = beam

    def texts(self, batch: Sequence[Samples], kind: Kind) -> list[str]:  # noqa: ARG002
        found = []
        for samples in batch:
            segments, _ = self._model.transcribe(samples, beam_size=self._beam, language=LANGUAGE)
            found.append("".join(segment.text for segment in segments).strip())
        return found

    @property
    def redone(self) -> int:
        return 0


class Ours:
    """Hearline's engine as a worker uses it; raises `BenchError` for a decode that fails."""

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber

    def texts(self, batch: Sequence[Samples], kind: Kind) -> list[str]:
        requests = [DecodeRequest(samples, kind, LANGUAGE) for samples in batch]
        texts = []
        for answer in self._transcriber.decode(requests):
            if isinstance(answer, DecodeError):
                raise BenchError(f"a decode failed: {answer}")
            texts.append(answer.text)
        return texts

    @property
    def counters(self) -> Counter[str]:
        """What became of suspicious decodes, by kind, as far as the engine counts it."""
        return Counter(dict(self._transcriber.counters))

    @property
    def redone(self) -> int:
        return self.counters["full_window"]


@dataclass(frozen=True, slots=True)
class Options:
    """How everything is decoded: one device, one arithmetic, one number of threads for all contenders.

    ``calibration``: of right-sized windows, as a worker would find it.
    """

    device: str = "cpu"
    compute_type: str = "default"
    threads: int = 1
    calibration: Calibration | None = None


@dataclass
class Stopwatch:
    """CPU seconds of this process on a CPU, where all the work is done here; wall seconds with a GPU."""

    clock: str

    def __post_init__(self) -> None:
        self._read: Callable[[], float] = time.process_time if self.clock == "cpu" else time.perf_counter

    def time(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[float, T]:
        """(seconds, what ``work`` returned)."""
        start = self._read()
        result = work(*args, **kwargs)
        return self._read() - start, result


class Bank:
    """The contenders by name, each loaded when first asked for; all from the same files."""

    def __init__(self, files: ModelFiles, options: Options) -> None:
        self._files = files
        self._options = options
        self._loaded: dict[str, Any] = {}
        self._ours: list[Ours] = []

    def peer(self, beam: int) -> Engine:
        """faster-whisper's ``transcribe`` with this beam."""
        return Peer(self._once("peer", self._load_peer), beam)

    def ours(self, *, full: bool, partial_beam: int = 1, final_beam: int = 1) -> Engine:
        """Hearline's engine, its windows sized to the audio or always full."""
        name = f"{'full' if full else 'sized'} {partial_beam} {final_beam}"
        loaded: Ours = self._once(name, lambda: self._load_ours(full, partial_beam, final_beam))
        return loaded

    def served(self) -> Engine:
        """Hearline's engine with a worker's default beams."""
        return self.ours(full=False, partial_beam=1, final_beam=5)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Suspicious decodes of all engines of ours so far, by what was done."""
        return dict(sum((ours.counters for ours in self._ours), Counter()))

    def describe(self) -> dict[str, object]:
        """The weights and the arithmetic."""
        from workers.model_files import WEIGHTS, sha256_of

        return {
            "model": self._files.name,
            "weights_sha256": sha256_of(self._files.path / WEIGHTS),
            "device": self._options.device,
            "compute_type": self._options.compute_type,
            "threads": self._options.threads,
            "calibration": self._options.calibration.source if self._options.calibration else "shipped",
        }

    def _once(self, name: str, load: Callable[[], Any]) -> Any:
        if name not in self._loaded:
            self._loaded[name] = load()
        return self._loaded[name]

    def _load_peer(self) -> Any:
        from faster_whisper import WhisperModel

        model = WhisperModel(
            str(self._files.path),
            device=self._options.device,
            compute_type=self._options.compute_type,
            cpu_threads=self._options.threads,
            local_files_only=True,
        )
        Peer(model, 1).texts([_second()], Kind.PARTIAL)
        return model

    def _load_ours(self, full: bool, partial_beam: int, final_beam: int) -> Ours:
        from workers.whisper import WhisperOptions, load_whisper

        whisper = load_whisper(
            self._files,
            WhisperOptions(
                device=self._options.device,
                compute_type=self._options.compute_type,
                threads=self._options.threads,
                partial_beam=partial_beam,
                final_beam=final_beam,
                window="full" if full else "auto",
                calibration=None if full else self._options.calibration,
            ),
        )
        whisper.warm_up()
        ours = Ours(whisper)
        self._ours.append(ours)
        return ours


def _second() -> Samples:
    import numpy as np

    return np.random.default_rng(0).normal(0.0, 0.01, 16_000).astype(np.float32)
