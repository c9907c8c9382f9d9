"""The client of the service benchmark, against a service that sends it away at first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ops import service_bench_client
from ops.errors import Failed
from ops.service_bench_client import Clip, Sending, transcribe
from tests.support.fake_service import fake_service, refusal_body

CLIP = Clip("a", Path("a.wav"), bytes(32_000), "")


def test_who_is_told_to_come_back_does_and_gets_its_text() -> None:
    with fake_service(refuse=(503, {"Retry-After": "0"}, refusal_body())) as service:
        service.refusals = 3
        assert asyncio.run(transcribe(service.url, CLIP, Sending(3_200, paced=False))) == "32000 bytes"
        assert service.refusals == 0


@pytest.mark.parametrize(("status", "asked"), [(503, 8), (404, 1)])
def test_who_is_refused_for_good_has_no_text(status: int, asked: int) -> None:
    assert service_bench_client.REFUSALS == 8
    with fake_service(refuse=(status, {"Retry-After": "0"}, b"")) as service:
        service.refusals = 100
        with pytest.raises(Failed, match=f"{status}"):
            asyncio.run(transcribe(service.url, CLIP, Sending(3_200, paced=False)))
        assert service.refusals == 100 - asked
