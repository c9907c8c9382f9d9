"""Whose request it is behind proxies, and how fast a stream is read."""

from __future__ import annotations

import pytest

from api.addresses import client_address, owner_name, parse_networks
from api.pace import BURST_S, Pace, SharedRate
from api.settings import ApiSettings
from queueing.clock import ManualClock
from queueing.errors import SettingsError
from sessions.wire import BYTES_PER_SECOND

TRUSTED = parse_networks("127.0.0.1, 10.0.0.0/8, fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # a stranger may write what it likes
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "1.2.3.4, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.2.3.4, 198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4, nonsense", "10.0.0.1"),
        ("fd00::1", "[2001:db8::5]:443", "2001:db8::5"),
        ("::ffff:203.0.113.7", "", "203.0.113.7"),
        ("10.0.0.1", ",".join(["1.2.3.4"] + ["10.1.1.1"] * 1_000), "10.1.1.1"),
        ("", "1.2.3.4", None),
    ],
)
def test_the_client_is_who_the_last_trusted_proxy_heard(peer: str, forwarded: str, expected: str | None) -> None:
    found = client_address(peer, forwarded, TRUSTED)
    assert (None if found is None else str(found)) == expected


def test_an_ipv6_household_is_one_client() -> None:
    one, two = (client_address(f"2001:db8:1:2::{n}", "", ()) for n in (1, 2))
    assert one is not None
    assert two is not None
    assert owner_name(one) == owner_name(two) == "address:2001:db8:1:2::"


def test_a_wrong_network_is_refused_with_its_name() -> None:
    with pytest.raises(SettingsError, match=r"10\.0\.0\.256"):
        ApiSettings.from_env({"HEARLINE_TRUSTED_PROXIES": "127.0.0.1,10.0.0.256"})


def test_a_stream_is_held_back_beyond_its_rate_after_the_burst() -> None:
    clock = ManualClock()
    pace = Pace(clock, 50.0)
    pace.spend(int(BURST_S * BYTES_PER_SECOND))
    pace.spend(100 * BYTES_PER_SECOND)
    assert pace.wait_s() == pytest.approx(2.0, rel=0.01)
    clock.advance(2.1)
    assert pace.wait_s() == 0
    for _ in range(1_000):  # real time never waits
        clock.advance(0.1)
        pace.spend(3_200)
        assert pace.wait_s() == 0


def test_no_limit_never_waits() -> None:
    pace = Pace(ManualClock(), 0)
    pace.spend(10**12)
    assert pace.wait_s() == 0


def test_the_streams_of_a_key_share_its_rate_and_processes_its_share() -> None:
    clock = ManualClock()
    shared = SharedRate(clock, 4.0)
    one, two = (Pace(clock, 50.0, shared) for _ in range(2))
    one.spend(40 * BYTES_PER_SECOND)
    assert two.wait_s() == pytest.approx(0, abs=0.01)
    two.spend(8 * BYTES_PER_SECOND)
    assert one.wait_s() == two.wait_s() == pytest.approx(2.0, rel=0.01)
    shared.set_share(0.5)
    assert one.wait_s() == pytest.approx(4.0, rel=0.01)
