"""Wrong settings are answered with what is allowed, in words; misspelt ones with the name that was meant."""

from __future__ import annotations

import pytest

from queueing.errors import SettingsError
from queueing.policies import POLICIES
from queueing.settings import QueueSettings, choices
from workers.settings import WorkerSettings


def test_a_value_that_is_not_among_the_choices_is_answered_with_them() -> None:
    with pytest.raises(SettingsError) as caught:
        WorkerSettings.from_env({"HEARLINE_DEVICE": "gpu", "HEARLINE_LOG_FORMAT": "xml", "HEARLINE_POLICY": "luck"})
    text = str(caught.value)
    assert "HEARLINE_DEVICE='gpu': use one of auto, cpu, cuda" in text
    assert "HEARLINE_LOG_FORMAT='xml': use one of json, console" in text
    assert f"HEARLINE_POLICY='luck': choose one of {', '.join(POLICIES)}" in text
    assert "pattern" not in text


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_a_setting(name: str) -> None:
    assert QueueSettings.from_env({"HEARLINE_POLICY": name}).policy == name


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("^(auto|int8_float32)$", ("auto", "int8_float32")),
        ("^(only)$", ("only",)),
        ("^[a-z]{2,3}$", ()),
        ("^(a|b+)$", ()),
        ("^(a|b)x$", ()),
        ("", ()),
    ],
)
def test_only_a_list_of_words_is_choices(pattern: str, words: tuple[str, ...]) -> None:
    assert choices(pattern) == words
