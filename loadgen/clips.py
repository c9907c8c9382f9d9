"""Audio files as what the service takes: 16 kHz mono PCM16LE bytes.

Anything that PyAV (FFmpeg) reads goes in; sound comes out block by block, so that an hour takes no more memory
than a second. What cannot be used is refused with a `ClipError` that says why and what to do; what is damaged is
used as far as it goes, with a warning. Files are opened here and handed over as open files, so a name is never
taken for a URL or a playlist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

import av
import av.audio
import av.container
import numpy as np

from loadgen.downmix import RATE, Downmixer

BYTES_PER_SECOND = RATE * 2

SHORTFALL_S = 0.25
"""A file is called truncated when it ends this much earlier than its header says; codecs pad by less."""

PIPE_HINT = "headerless 16 kHz mono PCM16 goes through standard input: hearline stream - < FILE"

RAW_SUFFIXES = frozenset({".raw", ".pcm", ".s16", ".s16le", ".sw"})

CONTAINER_SUFFIXES = frozenset(
    {".wav", ".flac", ".mp3", ".m4a", ".mp4", ".m4b", ".aac", ".ogg", ".oga", ".opus", ".webm", ".mkv", ".mka", ".aiff"}
    | {".aif", ".caf", ".au", ".wma", ".amr", ".mov", ".avi", ".flv", ".ts", ".wv", ".ape", ".3gp", ".rf64", ".w64"}
)
"""Names that say a format with a header; what is wrong with such a file is not that it has none."""

Warn = Callable[[str], None]
"""Where warnings about a clip go: one sentence each."""


class ClipError(Exception):
    """This input cannot be streamed. ``source``: what was asked for; ``problem``: why not, and the fix."""

    def __init__(self, source: str, problem: str) -> None:
        self.source = source
        self.problem = problem
        super().__init__(f"{source}: {problem}")


class Readable(Protocol):
    """A source of bytes that need not be seekable."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; empty at the end."""


def read_clip(path: Path, warn: Warn) -> Iterator[bytes]:
    """The sound of a file as PCM16 blocks of up to a few seconds.

    Raises `ClipError` (while iterating) for a file that is missing, not audio, empty or without a usable sample.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise ClipError(str(path), "there is no such file") from None
    except IsADirectoryError:
        raise ClipError(str(path), "this is a directory; name an audio file in it") from None
    except OSError as error:
        raise ClipError(str(path), f"cannot be opened: {error.strerror or error}") from error
    with file:
        head = file.read(512)
        if not head:
            raise ClipError(str(path), "the file is empty (0 bytes)")
        if is_text(head):
            raise ClipError(str(path), "this is a text file, not audio, whatever its name")
        missing = wav_shortfall(path, head)
        if missing:
            warn(f"{path}: the file is cut short: {missing} bytes that its header promises are missing")
        file.seek(0)
        yield from decode(file, str(path), warn)


def load_clip(path: Path, warn: Warn, limit_s: float = 3600.0) -> bytes:
    """The whole sound of a file; raises `ClipError` as `read_clip`, and for more than ``limit_s`` seconds."""
    blocks = []
    size = 0
    for block in read_clip(path, warn):
        size += len(block)
        if size > limit_s * BYTES_PER_SECOND:
            raise ClipError(
                str(path), f"longer than {limit_s:g} s, the most that is held in memory; cut it into pieces"
            )
        blocks.append(block)
    return b"".join(blocks)


def decode(file: IO[bytes] | Readable, source: str, warn: Warn) -> Iterator[bytes]:
    """The first audio stream of an open container as PCM16 blocks; ``source`` names it in errors."""
    try:
        container = av.open(file, "r", metadata_errors="ignore")
    except (av.FFmpegError, ValueError) as error:
        raise ClipError(
            source,
            f"not audio that can be read, or cut before its index ({_reason(error)}){_raw_hint(source)}",
        ) from error
    with container:
        if not container.streams.audio:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
            # Any bytes may pass for some picture: of a name that says raw samples, that is what they are.
            problem = "a file without a header" if _is_raw(source) else f"there is no audio in it, only {kinds}"
            raise ClipError(source, f"{problem}{_raw_hint(source)}")
        hint = "" if hasattr(file, "seek") else "; formats with their index at the end need a file instead of a pipe"
        yield from _decode_stream(container, container.streams.audio[0], source, warn, hint)


def _decode_stream(
    container: av.container.InputContainer, stream: av.audio.AudioStream, source: str, warn: Warn, hint: str
) -> Iterator[bytes]:
    downmixer = Downmixer(lambda text: warn(f"{source}: {text}"))
    decoded_s = 0.0
    damaged = 0
    reason = ""
    size = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            frames = [] if packet is None else packet.decode()
        except av.FFmpegError as error:
            # A damaged packet costs its own sound only: concatenated and truncated files have one in the middle.
            # A demuxer that fails ends the loop by itself, at the next call.
            damaged += 1
            reason = _reason(error)
            continue
        except ValueError as error:
            raise ClipError(source, f"the codec of this audio is not supported ({error})") from error
        if packet is None:
            break
        for frame in frames:
            decoded_s += frame.samples / (frame.sample_rate or RATE)
            for block in downmixer.push(frame):
                size += len(block)
                yield block
    for block in downmixer.finish():
        size += len(block)
        yield block
    if not size:
        raise ClipError(source, f"no sound in it could be decoded{f' ({reason})' if reason else ''}{hint}")
    declared_s = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else 0.0
    if decoded_s < declared_s - max(SHORTFALL_S, 0.03 * declared_s):
        warn(f"{source}: cut short or damaged: {declared_s:.1f} s by its header, {decoded_s:.1f} s could be decoded")
    elif damaged:
        warn(f"{source}: {damaged} damaged packet{'s' if damaged > 1 else ''} left out ({reason})")


def is_text(head: bytes) -> bool:
    """Whether the first bytes of an input are text; PCM16 of sound is not, beyond a few samples."""
    if len(head) < 16:
        return False
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    printable = sum(char.isprintable() or char in "\r\n\t" for char in text)
    return printable == len(text) and not head.startswith((b"RIFF", b"RF64"))


def wav_shortfall(path: Path, head: bytes) -> int:
    """Bytes that the ``data`` header of a WAV file promises beyond the end of the file; 0 if none or not a WAV.

    FFmpeg takes a WAV's length from the file's size and says nothing. 0 and 0xFFFFFFFF mean "until the end".
    """
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return 0
    position = 12
    while position + 8 <= len(head):
        size = int(np.frombuffer(head, "<u4", count=1, offset=position + 4)[0])
        if head[position : position + 4] == b"data":
            there = path.stat().st_size - position - 8
            return max(0, size - there) if size < 0xFFFFFFF0 else 0
        position += 8 + size + size % 2
    return 0


def _is_raw(source: str) -> bool:
    return Path(source).suffix.lower() in RAW_SUFFIXES


def _raw_hint(source: str) -> str:
    """The way for raw samples, unless the name says that it is a container."""
    return "" if Path(source).suffix.lower() in CONTAINER_SUFFIXES else f"; {PIPE_HINT}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
