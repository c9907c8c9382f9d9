"""The books of a run: what was sent must equal what was received, or an explicit error says that it does not.

Pure: records in, violations out. tests/chaos plants one violation of each kind and sees it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ops.chaos.audio import SAMPLE_RATE, Clip
from ops.chaos.excuses import Faults
from ops.chaos.records import Leave, Record, Violation
from sessions.codes import NOT_THE_STREAMS
from sessions.wire import Error, Final, Partial

SAME_S = 1e-6
"""Seconds that are equal: far below a sample."""

WIRE_DIGITS = 4
"""Decimals of a second on the wire."""

TextOf = Callable[[bytes], str]


def check(
    record: Record, clip: Clip, reference: Sequence[Final], faults: Faults, *, text_of: TextOf | None
) -> list[Violation]:
    """Everything that is wrong with one stream. ``reference``: the finals of the quiet run of its variant;
    ``text_of``: the text of PCM16, where one can know it."""
    found = [
        *_order(record),
        *_cover(record),
        *_texts(record, clip, reference, faults, text_of),
        *_partials(record),
        *_end(record, faults),
        *_returns(record),
        *(("odd", odd) for odd in record.odd),
        *_left_behind(record, faults),
    ]
    return [Violation(what, record.plan.name, f"{record.session or 'no session'}: {text}") for what, text in found]


Finding = tuple[str, str]


def _order(record: Record) -> Iterator[Finding]:
    """Numbers without a gap, over all connections."""
    expected = 1
    for seen in record.seen:
        message = seen.message
        if not isinstance(message, Partial | Final):
            continue
        if message.seq != expected:
            kind = "number twice" if message.seq < expected else "number gap"
            yield kind, f"seq {message.seq} on connection {seen.connection}, expected {expected}"
        expected = message.seq + 1


def _cover(record: Record) -> Iterator[Finding]:
    """Finals follow each other: no second of audio twice, none left out; the last flag at the end alone."""
    at_s, finals = 0.0, record.finals
    for number, final in enumerate(finals):
        if final.start_s < at_s - SAME_S:
            yield "final twice", f"final {number} covers {final.start_s} to {final.end_s} s, {at_s} s were final"
        elif final.start_s > at_s + SAME_S:
            yield "gap", f"final {number} begins at {final.start_s} s, the one before ended at {at_s} s"
        at_s = max(at_s, final.end_s)
        if final.last and number != len(finals) - 1:
            yield "after the last", f"final {number} of {len(finals)} says that it is the last"
    if round(at_s * SAMPLE_RATE) > record.sent:
        yield "more than sent", f"finals up to {at_s} s, {record.sent / SAMPLE_RATE} s were sent"


def _texts(
    record: Record, clip: Clip, reference: Sequence[Final], faults: Faults, text_of: TextOf | None
) -> Iterator[Finding]:
    """Each final has the text of its range, and the ranges are those of a quiet run."""
    # A web process drains too when its parent alone is killed; its clients hear of either, but one that is half open.
    unheard = faults.struck(record, "client.half_open") > 0 and faults.struck(record, "web.kill") > 0
    drains = (
        unheard
        or faults.struck(record, "web.term") > 0
        or any(isinstance(seen.message, Error) and seen.message.code == "shutting_down" for seen in record.seen)
    )
    recut = (drains and not record.plan.promises) or record.code == "idle_timeout"
    known = {(final.start_s, final.end_s): final for final in reference}
    for number, final in enumerate(record.finals):
        spoken = _spoken(final)
        if text_of is not None:
            possible = {""} if spoken is None else {text_of(part) for part in _parts(clip, *spoken)}
            if final.text not in possible:
                yield "wrong text", f"final {number} of {spoken} s is {final.text!r}, not {' or '.join(possible)!r}"
        quiet = known.get((final.start_s, final.end_s))
        if quiet is None:
            # A drain ends the segment that is being spoken, unless the client has promised to come back. What each
            # final says of its own range was checked above.
            if not recut:
                yield "other range", f"final {number} covers {final.start_s} to {final.end_s} s, unlike a quiet run"
        elif (final.text != quiet.text or spoken != _spoken(quiet)) and not (recut and spoken != _spoken(quiet)):
            yield "changed text", f"final {number} is {final.text!r} ({spoken} s), in a quiet run {quiet.text!r}"


def _parts(clip: Clip, start_s: float, end_s: float) -> Iterator[bytes]:
    """The ranges of the clip that these times can mean: on the wire they are rounded to tenths of a millisecond, which
    is more than a sample where a drain cut in the middle of a frame."""
    for start in _samples(start_s):
        for end in _samples(end_s):
            yield clip.pcm[2 * start : 2 * end]


def _samples(seconds: float) -> list[int]:
    near = round(seconds * SAMPLE_RATE)
    return [at for at in range(max(0, near - 2), near + 3) if round(at / SAMPLE_RATE, WIRE_DIGITS) == seconds] or [near]


def _spoken(final: Final) -> tuple[float, float] | None:
    """The range that was decoded; None where nothing was."""
    if final.speech_start_s is None or final.speech_end_s is None:
        return None
    return final.speech_start_s, final.speech_end_s


def _partials(record: Record) -> Iterator[Finding]:
    """No partial of what is final; the stable part of one segment's partials only grows."""
    at_s, stable, start_s = 0.0, "", -1.0
    for seen in record.seen:
        message = seen.message
        if isinstance(message, Final):
            at_s, stable = max(at_s, message.end_s), ""
        elif isinstance(message, Partial):
            if message.start_s < at_s - SAME_S:
                yield "partial after final", f"seq {message.seq} begins at {message.start_s} s, final up to {at_s} s"
            if not message.text.startswith(message.stable):
                yield "unstable", f"seq {message.seq}: {message.text!r} does not begin with {message.stable!r}"
            fresh = message.start_s != start_s or seen.connection > 1  # a resumed stream may begin its guesses anew
            if not fresh and not message.stable.startswith(stable):
                yield "unstable", f"seq {message.seq}: {message.stable!r} was {stable!r}"
            stable, start_s = message.stable, message.start_s


def _end(record: Record, faults: Faults) -> Iterator[Finding]:
    """The stream ended as it may, and what it says of itself is true."""
    done, finals = record.done, record.finals
    for position, seen in enumerate(record.seen):
        fatal = isinstance(seen.message, Error) and seen.message.fatal
        waits = isinstance(seen.message, Error) and seen.message.code in NOT_THE_STREAMS
        later = [one for one in record.seen[position + 1 :] if not waits or one.connection == seen.connection]
        if (fatal or seen.message is done) and later:
            yield "after the end", f"{len(later)} messages came after {seen.message!r}"
            break
    match record.outcome:
        case "done":
            assert done is not None
            ended_s = finals[-1].end_s if finals else 0.0
            if round(ended_s * SAMPLE_RATE) != record.total or record.plan.leave is not Leave.END:
                yield "lost samples", f"finals up to {ended_s} s of {record.total / SAMPLE_RATE} s"
            if abs(done.audio_s - record.total / SAMPLE_RATE) > SAME_S:
                yield "lost samples", f"done says {done.audio_s} s of {record.total / SAMPLE_RATE} s"
            if done.finals != len(finals):
                yield "miscounted", f"done says {done.finals} finals, {len(finals)} came"
            if not finals or not finals[-1].last:
                yield "no last final", f"the last of {len(finals)} finals does not say so"
            if record.close_code not in (1000, None, 1006):
                yield "wrong close", f"closed with {record.close_code} after done"
        case "left":
            pass
        case "hung" | "":
            yield "hanging", record.detail or "never ended"
        case _ if not faults.excuses(record):
            away = f"Redis was away for {faults.redis_away_s(record):.1f} s at most"
            yield f"unexcused {record.outcome}", f"{record.code} ({record.detail}); close {record.close_code}; {away}"


def _left_behind(record: Record, faults: Faults) -> Iterator[Finding]:
    """A connection whose stream went on elsewhere is told so, or what a fault explains."""
    for code in record.older_told:
        if code != "taken_over" and not faults.explain(code, record):
            yield "odd", f"the older connection was told {code}, not taken_over"


def _returns(record: Record) -> Iterator[Finding]:
    """Where a resumed stream goes on: not before what was acknowledged or final, not after what was sent."""
    for joined in record.joined:
        if not joined.resumed:
            if joined.received:
                yield "wrong position", f"a new stream begins at sample {joined.received}"
            continue
        before = [seen.message for seen in record.seen if seen.connection < joined.connection]
        final_to = max((min(_samples(final.end_s)) for final in before if isinstance(final, Final)), default=0)
        if joined.received < max(joined.acknowledged, final_to):
            yield (
                "acknowledged audio lost",
                (
                    f"connection {joined.connection} goes on at sample {joined.received}; {joined.acknowledged} were "
                    f"acknowledged, {final_to} final"
                ),
            )
        if joined.received > joined.sent:
            yield "wrong position", f"connection {joined.connection}: {joined.received} of {joined.sent} sent samples"
