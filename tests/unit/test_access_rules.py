"""Credentials, origins, host names, addresses to listen on: the rules, each by its table."""

from __future__ import annotations

import pytest
from werkzeug.datastructures import Headers, MultiDict

from api.attempts import BURST, MOST_ADDRESSES, PER_S, WrongKeys
from api.credentials import Conflict, answered_protocol, offered_protocols, presented_key
from api.origins import Allowed, host_allowed, origin_allowed, parse_list, split_authority
from api.settings import ApiSettings
from queueing.clock import ManualClock
from queueing.errors import SettingsError
from sessions.exposure import exposure_problem, is_loopback_name, resolve

A, B = "hl_" + "a" * 52, "hl_" + "b" * 52


def presented(*headers: tuple[str, str], query: tuple[tuple[str, str], ...] = ()) -> str | None:
    return presented_key(Headers(headers), MultiDict(query))


@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ((), (), None),
        ((("Authorization", f"Bearer {A}"),), (), A),
        ((("Authorization", f"token   {A} "),), (), A),
        ((("Authorization", f"BEARER {A}"),), (), A),
        ((("Authorization", "Basic dXNlcjpwYXNz"),), (), None),
        ((("Authorization", A),), (), None),
        ((("Authorization", "Bearer"),), (), ""),
        ((), (("api_key", A),), A),
        ((), (("API_KEY", A), ("key", A)), None),
        ((("Sec-WebSocket-Protocol", f"token, {A}"),), (), A),
        ((("Sec-WebSocket-Protocol", "bearer"), ("Sec-WebSocket-Protocol", A)), (), A),
        ((("Sec-WebSocket-Protocol", f"chat,token,{A}"),), (), A),
        ((("Sec-WebSocket-Protocol", "chat, token"),), (), None),
        ((("Sec-WebSocket-Protocol", f"{A}, token"),), (), None),
        ((("Authorization", f"Bearer {A}"), ("Sec-WebSocket-Protocol", f"token, {A}")), (("api_key", A),), A),
        ((("Authorization", "Basic x"),), (("api_key", A),), A),
    ],
)
def test_where_a_key_may_be(headers: tuple[tuple[str, str], ...], query: tuple[tuple[str, str], ...], key: str) -> None:
    assert presented(*headers, query=query) == key


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ((("Authorization", f"Bearer {A}"), ("Authorization", f"Bearer {B}")), ()),
        ((("Authorization", f"Bearer {A}"),), (("api_key", B),)),
        ((("Authorization", f"Bearer {A}"),), (("api_key", ""),)),
        ((), (("api_key", A), ("api_key", B))),
        ((("Sec-WebSocket-Protocol", f"token, {A}"),), (("api_key", B),)),
    ],
)
def test_keys_that_differ_are_no_key(headers: tuple[tuple[str, str], ...], query: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(Conflict):
        presented(*headers, query=query)


@pytest.mark.parametrize(
    ("offered", "answer"),
    [
        (f"token, {A}", "token"),
        (f"bearer,{A}", "bearer"),
        (f"chat, token, {A}", "token"),
        ("token", None),
        (f"{A}", None),
        (f"{A}, {B}", None),
        ("", None),
    ],
)
def test_the_answered_subprotocol_is_never_the_key(offered: str, answer: str | None) -> None:
    assert answered_protocol(offered_protocols(Headers([("Sec-WebSocket-Protocol", offered)]))) == answer


LOCAL = Allowed()
OPEN = Allowed(loopback_only=False)


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "answer"),
    [
        (None, "127.0.0.1:8000", LOCAL, True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", LOCAL, True),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", LOCAL, False),
        ("http://localhost:8000", "127.0.0.1:8000", LOCAL, False),
        ("http://[::1]:8000", "[::1]:8000", LOCAL, True),
        ("https://captions.example", "captions.example", OPEN, True),
        ("https://captions.example:443", "captions.example", OPEN, True),
        ("http://captions.example", "captions.example:80", OPEN, True),
        ("https://Captions.Example", "captions.example", OPEN, True),
        ("https://evil.example", "captions.example", OPEN, False),
        ("https://captions.example.evil.example", "captions.example", OPEN, False),
        ("https://captions.example@evil.example", "captions.example", OPEN, False),
        ("https://captions.example/", "captions.example", OPEN, False),
        ("ftp://captions.example", "captions.example", OPEN, False),
        ("null", "captions.example", OPEN, False),
        ("", "captions.example", OPEN, False),
        ("https://[::1", "captions.example", OPEN, False),
        ("https://app.example", "captions.example", Allowed(parse_list("https://app.example")), True),
        ("https://APP.example", "captions.example", Allowed(parse_list(" https://App.example ,")), True),
        ("http://app.example", "captions.example", Allowed(parse_list("https://app.example")), False),
        ("null", "x", Allowed(parse_list("null")), True),
        ("https://anything.example", "x", Allowed(parse_list("*")), True),
    ],
)
def test_which_pages_may_open_a_stream(origin: str | None, host: str, allowed: Allowed, answer: bool) -> None:
    assert origin_allowed(origin, host, allowed) is answer


@pytest.mark.parametrize(
    ("host", "allowed", "answer"),
    [
        ("127.0.0.1:8000", LOCAL, True),
        ("127.9.9.9", LOCAL, True),
        ("localhost:8000", LOCAL, True),
        ("LOCALHOST.:8000", LOCAL, True),
        ("app.localhost", LOCAL, True),
        ("[::1]:8000", LOCAL, True),
        ("[::ffff:127.0.0.1]", LOCAL, True),
        ("rebound.example:8000", LOCAL, False),
        ("127.0.0.1.rebound.example", LOCAL, False),
        ("localhost.rebound.example", LOCAL, False),
        ("10.0.0.5", LOCAL, False),
        ("0.0.0.0", LOCAL, False),
        ("captions.example", Allowed(hosts=parse_list("Captions.Example")), True),
        ("captions.example.", Allowed(hosts=parse_list("captions.example")), True),
        ("anything", Allowed(hosts=parse_list("*")), True),
        ("anything", OPEN, True),
        ("anything", Allowed(hosts=parse_list("captions.example"), loopback_only=False), False),
        ("localhost", Allowed(hosts=parse_list("captions.example"), loopback_only=False), True),
    ],
)
def test_by_which_names_the_server_may_be_called(host: str, allowed: Allowed, answer: bool) -> None:
    authority = split_authority(host)
    assert authority is not None
    assert host_allowed(authority[0], allowed) is answer


@pytest.mark.parametrize("host", ["", ":8000", "a b", "a:b", "[::1", "::1", "a@b", "a/b", "x:123456", "\xff", "a,b"])
def test_a_host_header_that_is_none(host: str) -> None:
    assert split_authority(host) is None


@pytest.mark.parametrize("name", ["example.com", "", "localhost.example", "256.0.0.1", "::2", "[fe80::1]", "127.0.x"])
def test_names_of_other_machines(name: str) -> None:
    assert not is_loopback_name(name)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_needs_no_keys(host: str) -> None:
    assert exposure_problem(host, has_keys=False, allow_anonymous=False) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "fe80::1", "::ffff:10.0.0.1", ""])
def test_an_address_that_others_reach_needs_keys_or_a_word(host: str) -> None:
    problem = exposure_problem(host, has_keys=False, allow_anonymous=False, resolved=lambda text: [text or "0.0.0.0"])
    assert problem is not None
    for part in (repr(host), "HEARLINE_API_KEYS", "hearline keys add", "HEARLINE_ALLOW_ANONYMOUS=1", "127.0.0.1"):
        assert part in problem
    assert exposure_problem(host, has_keys=True, allow_anonymous=False) is None
    assert exposure_problem(host, has_keys=False, allow_anonymous=True) is None


def test_a_name_is_as_public_as_its_most_public_address() -> None:
    def resolved(name: str) -> list[str]:
        if name == "nowhere":
            raise OSError("no such name")
        return {"inside": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "10.0.0.1"], "none": []}[name]

    def problem(name: str) -> str | None:
        return exposure_problem(name, has_keys=False, allow_anonymous=False, resolved=resolved)

    assert problem("inside") is None
    for name in ("both", "none", "nowhere"):
        assert problem(name), name
    assert resolve("0.0.0.0") == ["0.0.0.0"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HEARLINE_ALLOWED_ORIGINS", "app.example", "https://NAME"),
        ("HEARLINE_ALLOWED_ORIGINS", "https://app.example/path", "without a path"),
        ("HEARLINE_ALLOWED_HOSTS", "app.example:80", "no port"),
        ("HEARLINE_ALLOWED_HOSTS", "https://app.example", "no host name"),
    ],
)
def test_lists_that_could_never_match_are_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ApiSettings.from_env({name: value})


def test_wrong_keys_of_one_address_are_bounded_and_those_of_another_are_not_counted() -> None:
    clock = ManualClock()
    wrong = WrongKeys(clock)
    assert [wrong.one_more("10.0.0.1") for _ in range(BURST)] == [0.0] * BURST
    for _ in range(100):
        wait_s = wrong.one_more("10.0.0.1")
        assert 0 < wait_s <= 1 / PER_S, "who goes on trying waits no longer for it"
    assert wrong.one_more("10.0.0.2") == 0
    clock.advance(1 / PER_S)
    assert wrong.one_more("10.0.0.1") == 0


def test_addresses_are_forgotten_beyond_a_bound() -> None:
    wrong = WrongKeys(ManualClock())
    for number in range(MOST_ADDRESSES + 10):
        wrong.one_more(f"10.0.{number // 256}.{number % 256}")
    assert len(wrong) == MOST_ADDRESSES
