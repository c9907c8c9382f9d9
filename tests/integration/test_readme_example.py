"""The README's client of a few lines, as it stands there: it prints what the service says, and ends without a fault."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from sessions.wire import BYTES_PER_SECOND, Done, Error, Final
from tests.support.fake_service import Behaviour, Seen, fake_service, send

README = Path(__file__).resolve().parents[2] / "README.md"
URL = "ws://127.0.0.1:8000/v1/stream"


def example() -> str:
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
        if URL in block and "connect(" in block
    )
    return str(code)


def run(behaviour: Behaviour, folder: Path, seconds: int) -> list[str]:
    (folder / "speech.wav").write_bytes(bytes(seconds * BYTES_PER_SECOND))
    with fake_service(behaviour) as service:
        code = example().replace(URL, service.url)
        ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def refuse(connection: ServerConnection, seen: Seen) -> None:
    connection.recv()
    send(connection, Error(code="unsupported_format", message="44100 Hz", fatal=True))
    # As the service does, what is still on its way is read: closing over it would reset the connection.
    reading = threading.Thread(target=read_all, args=(connection,))
    reading.start()
    connection.close(1003)
    reading.join()


def read_all(connection: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        for _message in connection:
            pass


def transcribe(connection: ServerConnection, seen: Seen) -> None:
    for message in connection:
        if isinstance(message, str):
            break
        seen.frames.append(message)
    end_s = len(seen.audio) / BYTES_PER_SECOND
    send(connection, Final(seq=1, start_s=0, end_s=end_s, text="All.", last=True), Done(audio_s=end_s, finals=1))
    connection.close(1000)


@pytest.mark.parametrize("seconds", [1, 600], ids=["all is sent", "closed while sending"])
def test_an_error_is_printed_and_is_the_end(tmp_path: Path, seconds: int) -> None:
    (line,) = run(refuse, tmp_path, seconds)
    assert "44100 Hz" in line


def test_finals_are_printed_up_to_done(tmp_path: Path) -> None:
    final, done = run(transcribe, tmp_path, 3)
    assert '"All."' in final
    assert '"audio_s":3.0' in done
