"""What is small on the wire and big in memory: compressed messages, and lengths that are announced."""

from __future__ import annotations

import socket
import zlib

import psutil
import pytest
import redis

from ops.redis_server import RedisServer
from sessions.wire import Done, End, encode
from tests.support.frames import BINARY, TEXT, RawClient, frame, upgrade_request
from tests.support.live_api import LiveApi, receive_all

INFLATED = 256 * 2**20
OFFER = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, permessage-deflate\r\n"


def bomb() -> bytes:
    """A quarter of a mebibyte that inflates a thousandfold, as RFC 7692 wants it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(2**20)
    packed = b"".join(packer.compress(block) for _ in range(INFLATED // len(block)))
    return (packed + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")


@pytest.mark.parametrize("opcode", [BINARY, TEXT])
def test_a_deflate_bomb_is_refused_and_inflates_nothing(
    redis_server: RedisServer, redis_client: redis.Redis, opcode: int
) -> None:
    packed = bomb()
    assert len(packed) < 2**19
    with LiveApi(redis_server.url) as api:
        (web,) = api.web_processes()
        before = web.memory_info().rss
        for data in (packed, packed[:100]):
            with socket.create_connection(("127.0.0.1", api.port), timeout=10) as sock:
                client = RawClient(sock)
                client.send(upgrade_request(extra=OFFER))
                head = client.read_head()
                assert head.startswith("HTTP/1.1 101")
                assert "permessage-deflate" not in head
                client.send(frame(opcode, data, rsv1=True))
                assert client.read_close() == 1002
        assert peak(web) - before < INFLATED / 4
        with api.connect(compression="deflate") as polite:
            assert not polite.protocol.extensions
            polite.send(encode(End()))
            assert isinstance(receive_all(polite)[-1], Done)


def peak(process: psutil.Process) -> int:
    """The most memory that it ever had, in bytes."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        (kib,) = [int(line.split()[1]) for line in file if line.startswith("VmHWM")]
    return kib * 1024
