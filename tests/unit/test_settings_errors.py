"""Wrong settings are answered with what is allowed, in words; misspelt ones with the name that was meant."""

from __future__ import annotations

import pytest

from api.settings import ApiSettings
from ops.configuration import SECTIONS, load
from ops.errors import WrongUse
from ops.settings_check import check_settings, misspelt
from queueing.errors import SettingsError
from queueing.policies import POLICIES
from queueing.settings import QueueSettings, choices, limits
from workers.settings import WorkerSettings


def test_a_value_that_is_not_among_the_choices_is_answered_with_them() -> None:
    with pytest.raises(SettingsError) as caught:
        WorkerSettings.from_env({"HEARLINE_DEVICE": "gpu", "HEARLINE_LOG_FORMAT": "xml", "HEARLINE_POLICY": "luck"})
    text = str(caught.value)
    assert "HEARLINE_DEVICE='gpu': use one of auto, cpu, cuda" in text
    assert "HEARLINE_LOG_FORMAT='xml': use one of json, console" in text
    assert f"HEARLINE_POLICY='luck': choose one of {', '.join(POLICIES)}" in text
    assert "pattern" not in text


@pytest.mark.parametrize("value", ["soon", "-1e9", "nan"])
def test_a_wrong_number_is_answered_with_its_limits_whatever_is_wrong_with_it(value: str) -> None:
    for section in SECTIONS:
        settings = load(section.target)
        rows = {
            row.name: limits(field) for row, field in zip(settings.rows(), settings.model_fields.values(), strict=True)
        }
        numbers = {name: (low, high) for name, (low, high) in rows.items() if low is not None}
        with pytest.raises(SettingsError) as caught:
            settings.from_env(dict.fromkeys(numbers, value))
        problems = {problem.name: problem.problem for problem in caught.value.problems}
        for name, (low, high) in numbers.items():
            allowed = f", {low} or more" if high is None else f" from {low} to {high}"
            assert problems[name] in (f"write a number{allowed}", f"write a whole number{allowed}")


def test_a_wrong_number_says_whether_it_must_be_whole() -> None:
    with pytest.raises(SettingsError) as caught:
        WorkerSettings.from_env({"HEARLINE_THREADS": "1.5", "HEARLINE_LEASE_S": "0.5", "HEARLINE_ATTEMPTS": "21"})
    text = str(caught.value)
    assert "HEARLINE_THREADS='1.5': write a whole number from 0 to 256" in text
    assert "HEARLINE_LEASE_S='0.5': write a number from 1 to 600" in text
    assert "HEARLINE_ATTEMPTS='21': write a whole number from 1 to 20" in text


def test_a_wrong_switch_is_answered_with_its_two_values() -> None:
    with pytest.raises(SettingsError, match="HEARLINE_EVENT_TIMING='maybe': use true or false"):
        ApiSettings.from_env({"HEARLINE_EVENT_TIMING": "maybe"})


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


def test_only_the_programs_that_run_here_are_checked() -> None:
    environment = {"HEARLINE_DEVICE": "gpu", "HEARLINE_PORT": "9000"}
    assert check_settings(environment, ["web", "other"]).port == 9000
    with pytest.raises(WrongUse, match="HEARLINE_DEVICE"):
        check_settings(environment, ["worker"])


def test_a_name_that_no_program_reads_is_told_with_the_closest_one() -> None:
    given = {"HEARLINE_MAX_STREEMS": "3", "HEARLINE_ZZZZ": "", "HEARLINE_SPEECH": "x", "HEARLINE_URL": "y", "PATH": ""}
    first, second = misspelt({**given, "HEARLINE_STATE_DIR": "", "HEARLINE_MODEL": ""})
    assert first == "HEARLINE_MAX_STREEMS is no setting and has no effect; did you mean HEARLINE_MAX_STREAMS?"
    assert second.startswith("HEARLINE_ZZZZ is no setting")
    assert "configuration.md" in second
