"""Where a fuzzer begins: for each target inputs that reach deep into what it tests. What was once found wrong is
kept here as well."""

from __future__ import annotations

import struct

from sessions.api_keys import HEADER, KeyRecord
from sessions.wire import (
    Ack,
    ClientMessage,
    Done,
    End,
    Error,
    Final,
    Flush,
    Keepalive,
    Partial,
    Resume,
    ServerMessage,
    Start,
    Status,
    Timing,
    Word,
    encode,
)
from tests.support.frames import BINARY, CONTINUATION, PING, TEXT, frame

KEY = "hl_" + "a" * 52


def wav(
    *, rate: int = 16_000, channels: int = 1, bits: int = 16, tag: int = 1, name: bytes = b"RIFF", extra: bytes = b""
) -> bytes:
    """A WAV file of 100 samples."""
    width = channels * bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * width, width, bits)
    samples = b"".join(struct.pack("<h", (number * 331) % 5_000) for number in range(100))
    chunks = b"WAVE" + extra + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    chunks += b"data" + struct.pack("<I", len(samples)) + samples
    return name + struct.pack("<I", len(chunks)) + chunks


def wire() -> list[bytes]:
    client: list[ClientMessage] = [
        Start(),
        Start(language="en", words=True, endpoint_ms=False, initial_prompt="Hello", hotwords="Athol"),
        Resume(session="9f2c1a7be04d83c5", token="t" * 43, last_seq=3),
        Flush(),
        Keepalive(),
        End(),
    ]
    server: list[ServerMessage] = [
        Partial(seq=1, start_s=0.0, end_s=1.0, stable="When", text="When is"),
        Ack(received_s=1.5),
        Final(
            seq=2,
            start_s=0.0,
            end_s=1.0,
            text="When is it?",
            last=True,
            speech_start_s=0.1,
            speech_end_s=0.9,
            words=(Word(text="When", start_s=0.1, end_s=0.3, probability=0.5),),
            timing=Timing(queue_ms=1, decode_ms=2, audio_s=0.8),
        ),
        Status(lag_s=1.0, partial_interval_s=2.0),
        Done(audio_s=1.0, finals=1),
        Error(code="overloaded", message="later", fatal=True, retry_after_s=5),
    ]
    texts = [b"", b"[]", b"null", b'{"type":1}', b'{"type":"start","sample_rate":1e400}', b'{"type":"end"} x', b"\xff{"]
    texts += [b'{"type":"start","initial_prompt":"\\ud800"}', b"[" * 300, b'{"type":"end","type":"start"}']
    found = [b"\x00" + encode(message).encode() for message in client]
    found += [b"\xff" + encode(message).encode() for message in server]
    return found + [side + text for side in (b"\x00", b"\xff") for text in texts]


def sniff() -> list[bytes]:
    cuts = b"\x01\x03\x10\x00"
    bodies = [
        wav(),
        wav(rate=8_000),
        wav(channels=2),
        wav(bits=8),
        wav(tag=3, bits=32),
        wav(name=b"RF64"),
        wav(extra=b"LIST" + struct.pack("<I", 5) + b"hello\x00"),
        wav(extra=b"LIST\xff\xff\xff\xff"),
        wav()[:30],
        b"RIFF\x00\x00\x00\x00WAVE",
        b"OggS\x00\x02",
        b"fLaC",
        b"ID3\x03\x00",
        b"\xff\xfb\x90\x64" * 50,
        b"\x1aE\xdf\xa3",
        b"\x1f\x8b\x08",
        b"PK\x03\x04",
        b"\x00\x00\x00\x20ftypM4A ",
        b"FORM\x00\x00\x00\x00AIFF",
        b'{"type":"end"}',
        b"hello, this is text and no sound at all\n" * 4,
        bytes(400),
        b"\x01\x02" * 200,
        b"".join(struct.pack("<f", number / 500) for number in range(300)),
        b"x",
    ]
    return [cuts + body for body in bodies]


def frames() -> list[bytes]:
    streams = [
        frame(BINARY, b"abc") + frame(BINARY, b"x" * 200) + frame(TEXT, b'{"type":"end"}'),
        frame(BINARY, b"ab", fin=False) + frame(CONTINUATION, b"cd") + frame(BINARY, b""),
        frame(TEXT, b"\xc3", fin=False) + frame(PING, b"p") + frame(CONTINUATION, b"\xa4"),
        frame(BINARY, b"x", rsv1=True),
        frame(TEXT, b"\xff"),
        frame(PING, b"p" * 126),
        frame(8, b"\x03\xe8bye"),
        frame(BINARY, b"x" * 1_100),
        frame(BINARY, b"abc")[:5],
        b"\x82\x03abc",
        frame(CONTINUATION, b"x"),
        b"\x83\x80",
        frame(BINARY, b"x" * 70_000, length=1 << 40)[:100],
    ]
    return [cuts + stream for cuts in (b"\x01\x01\x01\x01", b"\x07\x00\x02\x00") for stream in streams]


def keys() -> list[bytes]:
    record = KeyRecord(label="kiosk", sha256="0" * 64, max_streams=3, max_audio_rate=1.5)
    line = record.line()
    return [
        text.encode()
        for text in (
            HEADER + line,
            line + line,
            line.strip(),
            "",
            "\n\n",
            f"# x\n{KEY}\n",
            "[]",
            "{}",
            line.replace("3", "1e999"),
            line.replace("kiosk", "ki\\u2028osk"),
            line.replace('"max_streams":3', '"expires":"2030-01-31"'),
            "{" * 200,
        )
    ]


def access() -> list[bytes]:
    requests = [
        (f"Bearer {KEY}", f"token, {KEY}", KEY, "127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("Basic eA==", "chat", "a&b", "evil.example", "https://evil.example"),
        ("", "", "", "[::1]:8000", "http://[::1]:8000"),
        ("token", ",,token,,", "&", "localhost.", "null"),
        ("bearer  x", f"token, bearer, {KEY}", "", "127.0.0.1.evil.example", "http://[::1"),
        ("", "", "", "x:99999", "https://x:99999"),
        ("", "", "", "\u00b2:80", "http://\u00b2"),
    ]
    return ["\n".join(request).encode("latin-1") for request in requests]


SEEDS = {"wire": wire, "sniff": sniff, "frames": frames, "keys": keys, "access": access}
