"""Why there is no connection, in the words of both clients: each fault has a fix of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH

import pytest
from websockets.exceptions import InvalidURI

from loadgen import async_client, client, connect_errors
from loadgen.connect_errors import (
    CHECK_ADDRESS,
    CHECK_NAME,
    CHECK_PORT,
    NO_TLS,
    START_IT,
    TRUST_IT,
    WITH_TLS,
    connect_error,
)
from loadgen.connecting import Timeouts
from loadgen.errors import FIXES, GIVE_KEY, CannotConnect, ClientError, Refused, refusal
from loadgen.load_command import load
from loadgen.options import API_KEY_VARIABLE
from loadgen.recorder import Recorder
from loadgen.stream_command import stream
from queueing.clock import SystemClock
from sessions.wire import Start
from tests.support.fake_service import fake_service, refusal_body
from tests.support.tls_proxy import TlsProxy

Open = Callable[[str], None]


def by_thread(url: str) -> None:
    client.stream(url, [bytes(3_200)])


def by_asyncio(url: str) -> None:
    how = {"clock": SystemClock(), "sending": client.Sending(), "timeouts": Timeouts(), "recorder": Recorder()}
    asyncio.run(async_client.stream(url, bytes(3_200), Start(), **how))  # type: ignore[arg-type]


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """The port of a server that answers whatever comes with this, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30)


def nothing(stack: ExitStack) -> str:
    taken = stack.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    return f"ws://127.0.0.1:{taken.getsockname()[1]}"


def http_404(stack: ExitStack) -> str:
    return stack.enter_context(fake_service(refuse=(404, {}, b"<html>"))).url


def http_502(stack: ExitStack) -> str:
    return stack.enter_context(fake_service(refuse=(502, {}, b"<html>"))).url


def tls_to_plain(stack: ExitStack) -> str:
    return stack.enter_context(fake_service()).url.replace("ws://", "wss://")


def tls_to_plain_words(stack: ExitStack) -> str:
    return f"wss://127.0.0.1:{stack.enter_context(answering(b'HTTP/1.1 400 Bad Request' + bytes(8)))}"


def plain_to_tls(stack: ExitStack) -> str:
    return f"ws://127.0.0.1:{stack.enter_context(TlsProxy(1)).port}"


def untrusted(stack: ExitStack) -> str:
    return f"wss://127.0.0.1:{stack.enter_context(TlsProxy(1)).port}"


def another_kind(stack: ExitStack) -> str:
    return f"ws://127.0.0.1:{stack.enter_context(answering(b'-ERR unknown command'))}"


def no_such_name(stack: ExitStack) -> str:
    return "ws://nowhere.invalid"


@pytest.mark.parametrize("open_stream", [by_thread, by_asyncio])
@pytest.mark.parametrize(
    ("place", "fix"),
    [
        (nothing, START_IT),
        (http_404, FIXES[404]),
        (http_502, FIXES[502]),
        (tls_to_plain, NO_TLS),
        (tls_to_plain_words, NO_TLS),
        (plain_to_tls, WITH_TLS),
        (untrusted, TRUST_IT),
        (another_kind, WITH_TLS),
        (no_such_name, CHECK_NAME),
    ],
)
def test_each_fault_has_its_own_fix(open_stream: Open, place: Callable[[ExitStack], str], fix: str) -> None:
    with ExitStack() as stack, pytest.raises(CannotConnect) as caught:
        open_stream(f"{place(stack).removesuffix('/v1/stream')}/v1/stream")
    assert caught.value.fix == fix
    assert str(caught.value).endswith(f"; {fix}")
    assert ("hearline up" in str(caught.value)) == (place is nothing), "it is no fix where something answers"


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (OSError(f"Multiple exceptions: [Errno {ECONNREFUSED}] Connect, [Errno {ECONNREFUSED}] Connect"), START_IT),
        (OSError(f"Multiple exceptions: [Errno {ENETUNREACH}] Connect, [Errno {ECONNREFUSED}] Connect"), START_IT),
        (OSError(f"Multiple exceptions: [Errno {ENETUNREACH}] Connect, [Errno {EHOSTUNREACH}] C."), CHECK_ADDRESS),
        (OSError(EHOSTUNREACH, "No route to host"), CHECK_ADDRESS),
        (ConnectionResetError(ECONNRESET, "Connection reset by peer"), CHECK_ADDRESS),
        (TimeoutError("timed out"), CHECK_ADDRESS),
        (InvalidURI("ws://", "no host"), CHECK_NAME),
    ],
)
def test_errors_that_take_a_network_to_provoke(error: OSError | InvalidURI, fix: str) -> None:
    told = connect_error("ws://there:1/v1/stream", error)
    assert isinstance(told, CannotConnect)
    assert (told.fix, bool(told.reason)) == (fix, True)


def test_only_nobody_there_is_told_to_start_a_service() -> None:
    fixes = [value for name, value in vars(connect_errors).items() if name.isupper() and isinstance(value, str)]
    assert {CHECK_ADDRESS, CHECK_PORT, NO_TLS} < {*fixes}
    told = [str(refusal("ws://there", status, {}, b"")) for status in (200, 301, 400, 404, 405, 426, 500, 502, 504)]
    assert [text for text in [*fixes, *told] if "hearline up" in text] == [START_IT]


@pytest.mark.parametrize("open_stream", [by_thread, by_asyncio])
def test_a_key_that_is_asked_for_is_told_with_the_option_that_gives_it(open_stream: Open) -> None:
    body = refusal_body("unauthorized", "this service needs an API key; send it as `Authorization: Bearer KEY`")
    with fake_service(refuse=(401, {}, body)) as service, pytest.raises(Refused) as caught:
        open_stream(service.url)
    told = str(caught.value)
    assert "`Authorization: Bearer KEY`" in told
    for name in ("--api-key", API_KEY_VARIABLE):
        assert name in told
    for command in (stream, load):
        assert f"`hearline {command.name}`" in GIVE_KEY
        assert "--api-key" in [option for parameter in command.params for option in parameter.opts]
    other: ClientError = refusal("ws://there", 503, {}, refusal_body())
    assert "--api-key" not in str(other)
