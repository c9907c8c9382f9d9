"""docs/configuration.md is what the settings classes say, and the settings classes agree with each other."""

from __future__ import annotations

from pathlib import Path

from api.settings import ApiSettings
from ops.configuration import SECTIONS, load, render
from ops.settings import UpSettings
from workers.settings import WorkerSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_the_rendered_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m ops.configuration > docs/configuration.md"


def test_every_setting_is_on_the_page_and_explained() -> None:
    text = render()
    for section in SECTIONS:
        for row in load(section.target).rows():
            assert f"`{row.name}`" in text
            assert row.meaning.endswith("."), f"{row.name} is not explained in a sentence"


def test_settings_that_several_programs_read_agree() -> None:
    """`hearline up` promises these on behalf of the programs it starts."""
    web, worker, command = (
        {row.name: row for row in settings.rows()} for settings in (ApiSettings, WorkerSettings, UpSettings)
    )
    for name in ("HEARLINE_HOST", "HEARLINE_PORT"):
        assert web[name].default == command[name].default
    for name in ("HEARLINE_DRAIN_S",):
        assert float(command[name].default) >= max(float(web[name].default), float(worker[name].default)), (
            "`hearline up` would kill what still drains"
        )
