"""Keys, pages and names at a real web process: who gets in, who does not, and what nobody gets to see."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from ops import key_file
from ops.redis_server import RedisServer
from sessions.api_keys import KeyRecord, digest, make_key
from sessions.wire import Done, End, encode
from tests.support.eventually import eventually
from tests.support.frames import KEY as HANDSHAKE_KEY
from tests.support.live_api import LiveApi, receive_all
from tests.support.up_process import clean_environment

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": HANDSHAKE_KEY,
    "Sec-WebSocket-Version": "13",
}


class Guarded:
    """A web process with a key file, and one key that is valid."""

    def __init__(self, api: LiveApi, file: Path, key: str) -> None:
        self.api = api
        self.file = file
        self.key = key

    def refused(self, headers: Mapping[str, str], path: str = "/v1/stream") -> tuple[int, Mapping[str, str], Any]:
        status, answered, body = self.api.request(path, {**UPGRADE, **headers})
        return status, answered, json.loads(body)

    def counted(self, reason: str) -> float:
        headers = {"Authorization": f"Bearer {self.key}"}
        text = self.api.request("/metrics", headers)[2].decode()
        lines = [line for line in text.splitlines() if f'hearline_access_refused_total{{reason="{reason}"}}' in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


def new_key(file: Path, label: str, **fields: Any) -> str:
    key = make_key(secrets.token_bytes)
    key_file.add(file, KeyRecord(label=label, sha256=digest(key), **fields))
    return key


@pytest.fixture(scope="module")
def server(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    key = new_key(file, "kiosk")
    with LiveApi(redis_server.url, api_keys=file, log_level="debug") as api:
        yield Guarded(api, file, key)
    said = "\n".join(api.log)
    assert key not in said
    assert key[3:] not in said


@pytest.fixture
def guarded(server: Guarded, redis_client: redis.Redis) -> Guarded:
    return server


def test_a_key_opens_a_stream_wherever_it_is_sent(guarded: Guarded) -> None:
    api, key = guarded.api, guarded.key
    ways: list[tuple[dict[str, Any], str]] = [
        ({"additional_headers": {"Authorization": f"Bearer {key}"}}, ""),
        ({"additional_headers": {"Authorization": f"Token {key}"}}, ""),
        ({"subprotocols": ["token", key]}, "token"),
        ({"subprotocols": ["bearer", key]}, "bearer"),
    ]
    for options, protocol in ways:
        with api.connect(**options) as client:
            assert (client.subprotocol or "") == protocol
            client.send(encode(End()))
            assert isinstance(receive_all(client)[-1], Done)
    with connect(f"{api.stream_url}?api_key={key}", compression=None, proxy=None) as client:
        assert client.subprotocol is None
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Done)
    eventually(lambda: len(api.events("stream_summary")) >= 5, what="the streams' log lines")
    assert {event["key"] for event in api.events("stream_summary")} == {"kiosk"}


@pytest.mark.parametrize(
    ("headers", "query", "reason"),
    [
        ({}, "", "no_key"),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, "", "no_key"),
        ({"Authorization": f"Bearer hl_{'a' * 52}"}, "", "wrong_key"),
        ({"Authorization": "Bearer secret"}, "", "wrong_key"),
        ({"Sec-WebSocket-Protocol": "token, secret"}, "", "wrong_key"),
        ({}, "?api_key=", "wrong_key"),
        ({"Authorization": "Bearer KEY"}, "?api_key=other", "conflicting_keys"),
    ],
)
def test_others_are_refused_before_the_upgrade(
    guarded: Guarded, redis_client: redis.Redis, headers: dict[str, str], query: str, reason: str
) -> None:
    before = guarded.counted(reason)
    headers = {name: value.replace("KEY", guarded.key) for name, value in headers.items()}
    status, answered, body = guarded.refused(headers, f"/v1/stream{query}")
    assert (status, body["type"], body["code"], body["fatal"]) == (401, "error", "unauthorized", True)
    assert answered["WWW-Authenticate"].startswith("Bearer realm=")
    assert guarded.key not in json.dumps([body, dict(answered)])
    assert guarded.counted(reason) == before + 1
    assert redis_client.zcard("hl:{q:main}:streams") == 0


def test_an_expired_key_says_so_to_whoever_holds_it(guarded: Guarded) -> None:
    key = new_key(guarded.file, "trial", expires="2020-01-31")
    headers = {"Authorization": f"Bearer {key}"}
    eventually(lambda: "2020-01-31" in guarded.refused(headers)[2]["message"], what="the new key, and its end")
    key_file.revoke(guarded.file, "trial")


def test_keys_come_and_go_without_a_restart(guarded: Guarded) -> None:
    key = new_key(guarded.file, "visitor")
    headers = {"Authorization": f"Bearer {key}"}
    eventually(lambda: guarded.api.get("/v1/status", headers)[0] == 200, what="the new key")
    with guarded.api.connect(additional_headers=headers) as client:
        key_file.revoke(guarded.file, "visitor")
        eventually(lambda: guarded.api.get("/v1/status", headers)[0] == 401, what="the end of the key")
        client.send(encode(End()))  # what was open goes on
        assert isinstance(receive_all(client)[-1], Done)


def test_what_cannot_be_read_is_logged_without_its_key(guarded: Guarded) -> None:
    """gunicorn quotes a request that it does not understand."""
    key = guarded.key
    heads = [
        f"GET /v1/stream?api_key={key} HTTP/9.9.9\r\nHost: x\r\n\r\n",
        f"GET\t/v1/stream?api_key={key}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\x01\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization {key}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nX-{key}(: y\r\n\r\n",
    ]
    for head in heads:
        with socket.create_connection(("127.0.0.1", guarded.api.port), timeout=10) as sock:
            sock.sendall(head.encode())
            assert sock.recv(100).startswith(b"HTTP/1.1 4"), head
    eventually(lambda: any("left out" in line for line in guarded.api.log), what="a quoted request")
    assert not [line for line in guarded.api.log if key in line]


def test_what_tells_of_the_inside_needs_the_key_and_probes_do_not(guarded: Guarded) -> None:
    api, headers = guarded.api, {"Authorization": f"Bearer {guarded.key}"}
    for path in ("/metrics", "/v1/status"):
        assert api.get(path)[0] == 401
        assert api.get(path, headers)[0] == 200
    assert api.get("/health")[0] == 200
    assert api.get("/ready")[0] in (200, 503)
    for path in ("/", "/static/app.js", "/static/key.js"):
        assert api.get(path)[0] == 200


def test_pages_of_others_are_refused_whatever_key_they_have(guarded: Guarded) -> None:
    headers = {"Origin": "https://evil.example", "Authorization": f"Bearer {guarded.key}"}
    status, _, body = guarded.refused(headers)
    assert (status, body["code"]) == (403, "origin_refused")
    assert "HEARLINE_ALLOWED_ORIGINS" in body["message"]
    own = {"origin": Origin(guarded.api.url), "subprotocols": ["token", guarded.key]}
    with guarded.api.connect(**own) as client:
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Done)


@pytest.mark.parametrize("path", ["/v1/stream", "/", "/metrics", "/v1/status", "/static/app.js"])
def test_a_name_that_was_rebound_to_this_machine_gets_nothing(guarded: Guarded, path: str) -> None:
    headers = {
        "Host": "rebound.example:80",
        "Origin": "http://rebound.example",
        "Authorization": f"Bearer {guarded.key}",
    }
    status, _, body = guarded.refused(headers, path)
    assert (status, body["code"]) == (403, "host_refused")
    assert guarded.api.get("/health", {"Host": "rebound.example"})[0] == 200


def test_many_wrong_keys_are_slowed_down_and_the_right_one_is_not(redis_server: RedisServer, tmp_path: Path) -> None:
    key = new_key(tmp_path / "keys", "kiosk")
    with LiveApi(redis_server.url, api_keys=tmp_path / "keys", metrics_open=True) as api:
        wrong = {**UPGRADE, "Authorization": "Bearer wrong"}
        answers = [api.request("/v1/stream", wrong) for _ in range(40)]
        statuses = [status for status, _, _ in answers]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert int(answers[-1][1]["Retry-After"]) >= 1
        assert json.loads(answers[-1][2])["code"] == "rate_limited"
        eventually(lambda: len(api.events("api_key_refused")) >= statuses.count(401), what="a log line for each")
        assert len(api.events("api_key_refused")) == statuses.count(401)
        with api.connect(additional_headers={"Authorization": f"Bearer {key}"}):
            pass
        assert api.metric("hearline_access_refused_total", reason="too_many_attempts") == statuses.count(429)
        assert api.get("/v1/status")[0] == 401, "HEARLINE_METRICS_OPEN opens the metrics alone"


def test_listed_pages_and_names_are_let_in(redis_server: RedisServer) -> None:
    with LiveApi(redis_server.url, allowed_origins="https://app.example", allowed_hosts="captions.example") as api:
        with api.connect(origin=Origin("https://app.example")):
            pass
        with pytest.raises(InvalidStatus, match="403"), api.connect(origin=Origin("https://other.example")):
            pass
        assert api.get("/v1/status", {"Host": "captions.example"})[0] == 200
        assert api.get("/v1/status", {"Host": "other.example"})[0] == 403
        with api.connect(subprotocols=["token", "unneeded"]) as client:
            assert client.subprotocol == "token"


def test_it_listens_on_an_ipv6_address(redis_server: RedisServer) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback address: {error}")
    api = LiveApi(redis_server.url, host="::1")

    def answers() -> bool:
        connection = http.client.HTTPConnection("::1", api.port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    try:
        eventually(answers, timeout_s=30, what="an answer at ::1")
        url = f"ws://[::1]:{api.port}/v1/stream"
        with connect(url, compression=None, proxy=None, origin=Origin(f"http://[::1]:{api.port}")) as client:
            client.send(encode(End()))
            assert isinstance(receive_all(client)[-1], Done)
    finally:
        api.stop()


def run_api(**settings: object) -> subprocess.CompletedProcess[str]:
    environment = {f"HEARLINE_{name.upper()}": str(value) for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "api"],
        capture_output=True, text=True, timeout=30, check=False, env=clean_environment(**environment),
    )  # fmt: skip


def test_it_does_not_start_where_strangers_could_use_it(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::"):
        ended = run_api(host=host)
        assert ended.returncode == 2
        assert repr(host) in ended.stderr
        assert "HEARLINE_ALLOW_ANONYMOUS" in ended.stderr
    ended = run_api(api_keys=tmp_path / "keys")
    assert ended.returncode == 2
    assert "HEARLINE_API_KEYS" in ended.stderr
    assert "hearline keys add" in ended.stderr
