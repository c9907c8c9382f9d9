"""How a stream ended, as an exit status, a sentence and fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loadgen.clips import ClipError
from loadgen.display import printable
from loadgen.errors import CannotConnect, ClientError, Refused, ServerFailed
from loadgen.recorder import Recorder
from sessions.wire import ErrorCode

DONE, BAD_INPUT, REFUSED, FAILED, UNREACHABLE, INTERRUPTED = 0, 2, 3, 4, 5, 130

EXIT_STATUS_HELP = """\b
Exit status:
  0    done: every second of audio is in a final transcript
  2    wrong usage, or input that cannot be used as audio
  3    refused or limited: too many streams, queue full, audio limit reached
  4    the service failed: an error, a broken connection, no answer, a broken promise
  5    no service to connect to
  74   standard output cannot be written: a full disk
  130  interrupted"""

WRONG_INPUT = frozenset({ErrorCode.NOT_PCM16, ErrorCode.UNSUPPORTED_FORMAT, ErrorCode.UNSUPPORTED_LANGUAGE})
LIMITS = frozenset({ErrorCode.OVERLOADED, ErrorCode.AUDIO_LIMIT, ErrorCode.FRAME_TOO_BIG})


@dataclass(frozen=True, slots=True)
class Outcome:
    """``name`` is one of done, limited, bad_input, refused, failed, unreachable, interrupted."""

    name: str
    status: int
    message: str = ""
    code: str = ""
    retry_after_s: float | None = None
    warnings: list[str] = field(default_factory=list)


def outcome_of(recorder: Recorder, error: BaseException | None, warnings: list[str]) -> Outcome:
    """What became of a stream: its record, and the exception that ended it early."""
    match error:
        case None:
            return _finished(recorder, warnings)
        case KeyboardInterrupt():
            return Outcome("interrupted", INTERRUPTED, "stopped before the last final", warnings=warnings)
        case ClipError():
            return Outcome("bad_input", BAD_INPUT, str(error), warnings=warnings)
        case CannotConnect():
            return Outcome("unreachable", UNREACHABLE, str(error), warnings=warnings)
        case Refused(code=code, retry_after_s=retry):
            return Outcome("refused", REFUSED, str(error), code, retry, warnings)
        case ServerFailed(code=code, retry_after_s=retry):
            name, status = "failed", FAILED
            if code in WRONG_INPUT:
                name, status = "bad_input", BAD_INPUT
            elif code in LIMITS:
                name, status = "refused", REFUSED
            return Outcome(name, status, str(error), code, retry, warnings)
        case ClientError():
            return Outcome("failed", FAILED, str(error), warnings=warnings)
        case _:
            raise error


def _finished(recorder: Recorder, warnings: list[str]) -> Outcome:
    if recorder.faults:
        told = f"the service broke its protocol: {'; '.join(recorder.faults)}"
        return Outcome("failed", FAILED, told, "protocol", warnings=warnings)
    limit = next((error for error in recorder.errors if error.code == ErrorCode.AUDIO_LIMIT), None)
    if limit is not None:
        told = f"the rest of the audio was not taken: {limit.message}"
        return Outcome("limited", REFUSED, told, limit.code, warnings=warnings)
    if not recorder.complete:
        told = f"{recorder.missing_s:.1f} s of the audio are in no final transcript"
        return Outcome("failed", FAILED, told, "audio_missing", warnings=warnings)
    return Outcome("done", DONE, warnings=warnings)


def summary_fields(recorder: Recorder, outcome: Outcome) -> dict[str, Any]:
    """The summary as JSON-able fields; times in seconds, server times in milliseconds, null where unknown."""
    queue_ms, decode_ms = recorder.timings_ms("queue_ms"), recorder.timings_ms("decode_ms")
    return {
        "outcome": outcome.name,
        "exit_status": outcome.status,
        "session": recorder.session or None,
        "audio_s": round(recorder.audio_s if recorder.done is None else recorder.done.audio_s, 3),
        "sent_s": round(recorder.audio_s, 3),
        "text": recorder.text,
        "partials": recorder.partials,
        "finals": len(recorder.finals),
        "first_partial_s": _rounded(recorder.first_partial_s),
        "first_text_s": _rounded(recorder.first_text_s),
        "segment_latency_s": [round(latency, 4) for latency in recorder.segment_latencies_s],
        "final_latency_s": _rounded(recorder.final_latency_s),
        "queue_ms": queue_ms[-1] if queue_ms else None,
        "decode_ms": decode_ms[-1] if decode_ms else None,
        "max_send_lag_s": round(recorder.max_lag_s, 4),
        "resumes": recorder.resumes,
        "resume_gap_s": round(sum(recorder.gaps_s), 4),
        "close_code": recorder.close_code,
        "error": {"code": outcome.code, "message": outcome.message, "retry_after_s": outcome.retry_after_s}
        if outcome.message
        else None,
        "faults": recorder.faults,
        "warnings": outcome.warnings,
    }


def summary_line(recorder: Recorder, outcome: Outcome) -> str:
    """The summary as a sentence for people."""
    if outcome.status not in {DONE, REFUSED} or recorder.done is None:
        return f"{outcome.name}: {outcome.message}"
    # What the service took, which at a limit is less than what was sent.
    parts = [f"{recorder.done.audio_s:.1f} s of audio"]
    finals, wordless = len(recorder.finals), sum(not printable(final.text) for final in recorder.finals)
    if finals > 1:
        parts[0] += f" in {finals} finals"
    if finals > 1 and wordless:  # which no line stands for
        parts[0] += ", none of them with words" if wordless == finals else f", {wordless} of them without words"
    if recorder.final_latency_s is not None:
        parts.append(f"final {recorder.final_latency_s:.2f} s after the last sound")
    queue_ms, decode_ms = recorder.timings_ms("queue_ms"), recorder.timings_ms("decode_ms")
    if queue_ms and decode_ms:
        parts.append(f"of that {queue_ms[-1]} ms in the queue, {decode_ms[-1]} ms decoding")
    if recorder.first_partial_s is not None:
        noun = "partial" if recorder.partials == 1 else "partials"
        parts.append(f"{recorder.partials} {noun}, the first after {recorder.first_partial_s:.2f} s")
    if recorder.resumes:
        times = "once" if recorder.resumes == 1 else f"{recorder.resumes} times"
        parts.append(f"the connection broke {times}, {sum(recorder.gaps_s):.2f} s without one")
    line = "; ".join(parts)
    return line if outcome.status == DONE else f"{line}; {outcome.name}: {outcome.message}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
