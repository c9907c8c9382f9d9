"""What a Redis that cannot serve says reaches clients and operators in its own words, without our script's digest."""

from __future__ import annotations

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from queueing.errors import QueueUnavailable, RedisFull
from queueing.scripts import guarded

FULL = "OOM command not allowed when used memory > 'maxmemory'."
DISK = "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk."
BEFORE = "Error running script (call to f_0123456789abcdef): @user_script:29: @user_script: 29: -"
AFTER = " script: 0123456789abcdef, on @user_script:29."


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ResponseError(BEFORE + FULL), f"Redis is at its memory limit: {FULL}"),
        (OutOfMemoryError(FULL[4:] + AFTER), f"Redis is at its memory limit: {FULL[4:]}"),
        (ResponseError(BEFORE + DISK), f"Redis cannot serve now: {DISK}"),
        (ResponseError(DISK + AFTER), f"Redis cannot serve now: {DISK}"),
        (ResponseError(DISK), f"Redis cannot serve now: {DISK}"),
    ],
)
def test_where_in_which_script_it_was_said_is_left_out(error: ResponseError, told: str) -> None:
    with pytest.raises(QueueUnavailable) as caught, guarded():
        raise error
    assert str(caught.value) == told
    assert isinstance(caught.value, RedisFull) is (FULL[4:] in told)


def test_a_fault_of_our_own_keeps_every_word() -> None:
    with pytest.raises(ResponseError, match="user_script:29"), guarded():
        raise ResponseError(f"{BEFORE}attempt to index a nil value")
