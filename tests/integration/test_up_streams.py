"""``hearline up`` with real web processes and scripted workers, stopped while somebody speaks."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from websockets.sync.client import connect

from queueing.local_redis import free_port
from sessions.wire import Ack, Error, Ready, Start, encode
from tests.support.live_api import receive_all, receive_until
from tests.support.recordings import recording
from tests.support.returning import finals_of
from tests.support.up_process import HearlineProcess

SPEECH = recording("sample")[: 3 * 32_000]


@pytest.mark.parametrize("kept", [False, True], ids=["Redis goes too", "Redis' data stays"])
def test_who_speaks_when_it_is_stopped_has_a_final_unless_the_stream_can_go_on_later(
    tmp_path: Path, kept: bool
) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"base_s": 0.01}))
    port = free_port()
    environment = {"HEARLINE_TRANSCRIBER": "scripted", "HEARLINE_SCRIPT": str(tmp_path / "script.json")}
    arguments = ["up", "worker=1", "--port", str(port), *(["--data", str(tmp_path / "data")] if kept else [])]
    with HearlineProcess(arguments, state=tmp_path / "state", environment=environment) as service:
        service.wait_for("Hearline is ready", timeout_s=60)
        with connect(f"ws://127.0.0.1:{port}/v1/stream", proxy=None) as client:
            client.send(encode(Start(language="en", partials=False, resume=True)))
            receive_until(client, Ready)
            client.send(SPEECH)
            receive_until(client, Ack)
            service.signal(signal.SIGTERM)
            messages = receive_all(client)
            assert client.protocol.close_code == 1012
        assert service.end(40) == 0, service.text
    assert isinstance(messages[-1], Error)
    assert messages[-1].code == "shutting_down"
    said = [(final.last, bool(final.text)) for final in finals_of(messages)]
    assert said == ([] if kept else [(False, True)])
