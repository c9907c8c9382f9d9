"""What the service benchmark sends: recordings in frames of any size, at the pace of speech or without a pause."""

from __future__ import annotations

import asyncio
import csv
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import av
import av.error
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ops.errors import Failed, Missing
from sessions.wire import Done, End, Error, Final, Start, UnknownType, decode_server, encode

BYTES_PER_S = 32_000
ANSWER_S = 120.0
"""Longest time from the end of the audio to the last final."""
REFUSALS = 8
"""Times that a stream is asked for, with the pause that the service names, before its recording has no text."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording as PCM16LE, 16 kHz mono, and what is said in it."""

    id: str
    path: Path
    audio: bytes
    reference: str

    @property
    def seconds(self) -> float:
        return len(self.audio) / BYTES_PER_S

    def cut(self, seconds: float) -> Clip:
        """Its beginning, without a reference."""
        return Clip(f"{self.id} ({seconds:g} s)", self.path, self.audio[: int(seconds * BYTES_PER_S) // 2 * 2], "")


@dataclass(frozen=True, slots=True)
class Sending:
    """Bytes of a frame; ``paced``: a frame leaves when its last sample would have been recorded."""

    frame_bytes: int
    paced: bool
    partials: bool = True


def load_clips(folder: Path, least_s: float, most_s: float) -> list[Clip]:
    """The recordings of ``folder/manifest.csv`` within these lengths, in its order. Raises `Missing` for none."""
    try:
        with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if least_s <= float(row["seconds"]) <= most_s]
    except OSError as error:
        raise Missing(f"cannot read {folder / 'manifest.csv'}: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise Missing(f"{folder / 'manifest.csv'} needs the columns id, file, seconds, reference ({error})") from error
    if not rows:
        raise Missing(f"{folder} has no recording of {least_s:g} to {most_s:g} s")
    paths = [(folder / row["file"]).resolve() for row in rows]
    return [Clip(r["id"], path, read_pcm(path), r["reference"]) for r, path in zip(rows, paths, strict=True)]


def read_pcm(path: Path) -> bytes:
    """A file as 16 kHz mono PCM16LE. Raises `Missing` where it cannot be read."""
    try:
        with av.open(str(path)) as container:
            resampler = av.AudioResampler("s16", "mono", 16_000)
            frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
            frames += resampler.resample(None)
    except (av.error.FFmpegError, OSError, IndexError) as error:
        raise Missing(f"{path} cannot be read: {error}") from error
    return b"".join(frame.to_ndarray().tobytes() for frame in frames)


async def transcribe(url: str, clip: Clip, sending: Sending) -> str:
    """The text of one stream: its finals, joined. Raises `Failed` for a stream that does not reach `done`.

    Who is told to come back later (HTTP 503) does so: a service that stood still for some seconds refuses streams until
    it has looked after Redis again, and that says nothing of texts.
    """
    for _ in range(REFUSALS):
        try:
            return await _transcribe(url, clip, sending)
        except InvalidStatus as refused:
            if refused.response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise Failed(f"{clip.id}: no transcript: {refused}") from refused
            await asyncio.sleep(float(refused.response.headers.get("Retry-After", 1)))
    raise Failed(f"{clip.id}: no transcript: refused {REFUSALS} times (HTTP 503)")


async def _transcribe(url: str, clip: Clip, sending: Sending) -> str:
    try:
        async with connect(url, compression=None, proxy=None, ping_timeout=None, max_size=2**22) as connection:
            await connection.send(encode(Start(partials=sending.partials)))
            sender = asyncio.create_task(_send(connection, clip.audio, sending))
            finals: list[str] = []
            try:
                async with asyncio.timeout(_limit_s(clip, sending)):
                    while True:
                        try:
                            message = decode_server(await connection.recv())
                        except UnknownType:
                            continue
                        if isinstance(message, Final) and message.text:
                            finals.append(message.text)
                        elif isinstance(message, Done):
                            return " ".join(finals)
                        elif isinstance(message, Error) and message.fatal:
                            raise Failed(f"{clip.id}: the service said {message.code}: {message.message}")
            finally:
                sender.cancel()
                await asyncio.wait({sender})
    except InvalidStatus:
        raise
    except (ConnectionClosed, InvalidHandshake, OSError, TimeoutError) as error:
        raise Failed(f"{clip.id}: no transcript: {type(error).__name__}: {error}") from error


async def _send(connection: object, audio: bytes, sending: Sending) -> None:
    send = connection.send  # type: ignore[attr-defined]
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for at in range(0, len(audio), sending.frame_bytes):
        frame = audio[at : at + sending.frame_bytes]
        if sending.paced and (delay := begin + (at + len(frame)) / BYTES_PER_S - loop.time()) > 0:
            await asyncio.sleep(delay)
        await send(frame)
    await send(encode(End()))


def _limit_s(clip: Clip, sending: Sending) -> float:
    frames = len(clip.audio) / sending.frame_bytes
    return ANSWER_S + clip.seconds + frames / 100
