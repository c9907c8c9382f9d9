"""Are the client's bytes really 16 kHz mono PCM16? Judged before they are taken for sound. Pure.

The first bytes decide between samples, a WAV file (`sessions.wav` takes its header off) and anything else
(`sessions.containers` names it); then `sessions.pcm_checks` watches the first seconds with sound in them.
"""

from __future__ import annotations

from typing import Self

from pydantic_core import from_json

from sessions.codes import ErrorCode
from sessions.containers import identify
from sessions.errors import WrongAudio
from sessions.pcm_checks import PcmChecks
from sessions.wav import SEND_THIS, WavStripper, is_wav, may_be_wav
from sessions.wire import MAX_TEXT_BYTES


def is_control_message(data: bytes) -> bool:
    """Whether a binary message is a JSON object with a ``type``: a control message sent the wrong way."""
    if data[:1] != b"{" or len(data) > MAX_TEXT_BYTES:
        return False
    try:
        value = from_json(data)
    except ValueError:
        return False
    return isinstance(value, dict) and "type" in value


class Sniffer:
    """Passes a client's samples on, without headers; raises `WrongAudio` as soon as it is clear that they are none."""

    def __init__(self) -> None:
        self._head: bytearray | None = bytearray()
        self._wav: WavStripper | None = None
        self._checks: PcmChecks | None = PcmChecks()

    @classmethod
    def recognised(cls) -> Self:
        """For what goes on with samples that were recognised before."""
        sniffer = cls()
        sniffer._head = sniffer._checks = None
        return sniffer

    @property
    def held(self) -> int:
        """Bytes in memory that are neither passed on nor recognised yet (17 kB at most)."""
        return len(self._head or b"") + (self._wav.held if self._wav else 0)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; returns those that are samples. Raises `WrongAudio`."""
        if self._wav is not None:
            return self._checked(self._wav.feed(data))  # a header may lie about what follows it
        if self._head is None:
            return self._checked(data)
        self._head += data
        if is_wav(bytes(self._head[:4])):
            self._wav, head, self._head = WavStripper(), bytes(self._head), None
            return self._checked(self._wav.feed(head))
        return self._decide(complete=False)

    def flush(self) -> bytes:
        """A final is asked for now: what could only be recognised with more bytes counts as samples."""
        return b"" if self._head is None else self._decide(complete=True)

    def end(self) -> bytes:
        """No more bytes: the last samples. Raises `WrongAudio`, also for a header without samples."""
        if self._wav is not None:
            self._wav.end()
        samples = self.flush()
        if self._checks is not None and (cause := self._checks.end()):
            raise WrongAudio(ErrorCode.NOT_PCM16, f"these look like {cause}", SEND_THIS)
        return samples

    def _decide(self, *, complete: bool) -> bytes:
        head = bytes(self._head or b"")
        finding = identify(head, complete=complete)
        if finding.cause is not None:
            fix = "send control messages as text" if finding.cause.startswith("JSON") else SEND_THIS
            raise WrongAudio(ErrorCode.NOT_PCM16, f"this is {finding.cause}", fix)
        if not head or finding.more or (not complete and may_be_wav(head)):
            return b""
        self._head = None
        return self._checked(head)

    def _checked(self, data: bytes) -> bytes:
        if self._checks is not None:
            cause = self._checks.feed(data)
            if cause is not None:
                raise WrongAudio(ErrorCode.NOT_PCM16, f"these look like {cause}", SEND_THIS)
            if self._checks.finished:
                self._checks = None
        return data
