"""Does anybody speak, and where? Silero's judgement, the one that comes with faster-whisper.

It costs about 2 ms of CPU for each second of audio. Partials, which ask again and again over the same audio, are
judged only until speech was found, unless a long pause is in them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from faster_whisper.vad import VadOptions, get_speech_timestamps

from workers.timeline import LONGEST_SILENCE_S, Speech
from workers.transcriber import SAMPLE_RATE

VOICE = VadOptions(threshold=0.5, min_speech_duration_ms=100, min_silence_duration_ms=300, speech_pad_ms=0)
"""When the Silero detector's answer counts as speech. Its onset on a steady buzz lasts at most three frames of
32 ms; real words of 0.2 s, cut out of speech, pass."""

LOOK_S = 2.0
"""How much of a partial is judged at a time."""

FRAME_S = 0.1
QUIET = 0.1
"""A frame this far below the loudest one in amplitude (20 dB) may be a pause."""


def find_speech(samples: npt.NDArray[np.float32]) -> tuple[Speech, ...]:
    """The stretches of speech in samples of shape (n,), 16 kHz; none when nobody speaks."""
    return tuple(
        Speech(stretch["start"] / SAMPLE_RATE, stretch["end"] / SAMPLE_RATE)
        for stretch in get_speech_timestamps(samples, VOICE)
    )


def find_speech_quickly(samples: npt.NDArray[np.float32]) -> tuple[Speech, ...]:
    """As `find_speech`, but where no long pause can be, all of the audio counts as speech once some was found."""
    if may_hold_a_pause(samples):
        return find_speech(samples)
    step = int(LOOK_S * SAMPLE_RATE)
    for start in range(0, len(samples), step):
        if find_speech(samples[start : start + step]):
            return (Speech(0.0, len(samples) / SAMPLE_RATE),)
    return find_speech(samples) if len(samples) > step else ()


def may_hold_a_pause(samples: npt.NDArray[np.float32]) -> bool:
    """Whether the level stays low for longer than `LONGEST_SILENCE_S`."""
    frame = int(FRAME_S * SAMPLE_RATE)
    frames = len(samples) // frame
    levels = np.abs(samples[: frames * frame].reshape(frames, frame)).max(axis=1, initial=0.0)
    loud = np.flatnonzero(levels >= QUIET * levels.max(initial=0.0))
    edges = np.concatenate([[-1], loud, [frames]])
    return bool(np.diff(edges).max() - 1 > LONGEST_SILENCE_S / FRAME_S)
