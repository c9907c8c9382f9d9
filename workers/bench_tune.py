"""One worker of `hearline doctor --tune`: decodes the same jobs again and again, and says how many and how fast.

    python -m workers.bench_tune DIR

Settings come from the environment, as for a worker. It loads the model, writes ``ready`` and its memory as a line of
JSON, waits for a line with a number of seconds, decodes for so long, and writes a line of JSON: ``audio_s`` decoded,
``wall_s``, ``cpu_s``, and the seconds of each ``final`` and ``partial``. Several of them started at the same moment are
several workers on one machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TextIO

from queueing.clock import Clock, SystemClock
from queueing.errors import SettingsError
from queueing.lane import PADDING_S, Kind
from workers.bench_corpus import BenchError, Recording, load_recordings, part
from workers.load import load_transcriber
from workers.model_files import ModelError
from workers.settings import WorkerSettings
from workers.transcriber import DecodeError, DecodeRequest, Transcriber

WINDOWS_S = (4, 8, 12)
"""What utterances of 5 to 15 s are decoded in: their partials as they grow, their finals in the longest."""

RECORDINGS = 4
LOOKED_AT = 40


def jobs_of(recordings: Sequence[Recording], language: str | None) -> list[DecodeRequest]:
    """Of each recording the partials that fill the windows, and the final of the longest.

    Raises `BenchError` when none is long enough.
    """
    longest_s = WINDOWS_S[-1] - PADDING_S
    enough = [recording for recording in recordings if recording.audio_s >= longest_s][:RECORDINGS]
    if not enough:
        raise BenchError(f"no recording of {longest_s:g} s or more: name a folder that has some with --speech DIR")
    found = []
    for recording in enough:
        found += [DecodeRequest(part(recording, w - PADDING_S), Kind.PARTIAL, language) for w in WINDOWS_S]
        found.append(DecodeRequest(part(recording, longest_s), Kind.FINAL, language))
    return found


def decode_for(
    transcriber: Transcriber, jobs: Sequence[DecodeRequest], seconds: float, clock: Clock
) -> dict[str, object]:
    """Decode the jobs in turn, one at a time, until ``seconds`` are over and each kind was decoded at least once."""
    times: Mapping[Kind, list[float]] = {Kind.PARTIAL: [], Kind.FINAL: []}
    audio_s = 0.0
    cpu = time.process_time()
    begin = now = clock.monotonic()
    for job in cycle(jobs):
        if now - begin >= seconds and all(times.values()):
            break
        (answer,) = transcriber.decode([job])
        if isinstance(answer, DecodeError):
            raise BenchError(f"a decode failed: {answer}")
        before, now = now, clock.monotonic()
        times[job.kind].append(round(now - before, 4))
        audio_s += job.audio_s
    return {
        "audio_s": round(audio_s, 2),
        "wall_s": round(now - begin, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "final": times[Kind.FINAL],
        "partial": times[Kind.PARTIAL],
    }


def serve(folder: Path, settings: WorkerSettings, orders: TextIO, answers: TextIO, clock: Clock) -> None:
    """Load, say so, wait for the word, decode. Raises `BenchError`, `ModelError`, `SettingsError`."""
    loaded = load_transcriber(settings, crash=os._exit)
    jobs = jobs_of(load_recordings(folder, LOOKED_AT), settings.language or "en")
    loaded.transcriber.decode(jobs[:1])
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ready": True, "memory_mib": round(memory_mib), **loaded.description}), file=answers, flush=True)
    if line := orders.readline().strip():
        print(json.dumps(decode_for(loaded.transcriber, jobs, float(line), clock)), file=answers, flush=True)


if __name__ == "__main__":
    try:
        serve(Path(sys.argv[1]), WorkerSettings.from_env(os.environ), sys.stdin, sys.stdout, SystemClock())  # noqa: TID251
    except (BenchError, ModelError, SettingsError) as error:
        sys.exit(str(error))
