"""Standard output that cannot be written: one line and its own exit status, whatever the command was doing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.cli import COMMANDS, main
from ops.keys import VARIABLE
from ops.standard_output import EXIT_STATUS
from queueing.local_redis import free_port
from tests.support.fake_service import fake_service
from tests.support.up_process import clean_environment, procfile

FULL = Path("/dev/full")
SAID = ["Error: standard output cannot be written: No space left on device"]
SAID_OF_NONE = ["Error: standard output cannot be written: Bad file descriptor"]

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


def to_none(*arguments: str, **environment: str) -> tuple[int, list[str]]:
    """As ``hearline ... >&-`` runs it."""
    run = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "ops.cli", *arguments],
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return run.returncode, run.stderr.splitlines()


def to_a_full_disk(*arguments: str, **environment: str) -> tuple[int, list[str]]:
    with FULL.open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "ops.cli", *arguments],
            env=clean_environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    return run.returncode, run.stderr.splitlines()


@pytest.mark.parametrize("arguments", [("--help",), *((name, "--help") for name in COMMANDS)])
def test_every_command_says_so_in_one_line(arguments: tuple[str, ...]) -> None:
    assert to_a_full_disk(*arguments) == (EXIT_STATUS, SAID)
    assert to_none(*arguments) == (EXIT_STATUS, SAID_OF_NONE)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("options", [(), ("--no-partials",), ("--json",)])
def test_a_stream_whose_captions_cannot_be_kept_is_no_success(options: tuple[str, ...], unbuffered: str) -> None:
    with fake_service() as service:
        arguments = ("stream", "--synthetic", "3", "--speed", "0", *options, "--url", service.url)
        assert to_a_full_disk(*arguments, PYTHONUNBUFFERED=unbuffered) == (EXIT_STATUS, SAID)
        assert to_none(*arguments, PYTHONUNBUFFERED=unbuffered) == (EXIT_STATUS, SAID_OF_NONE)


def test_commands_that_answer_at_once(tmp_path: Path, redis_url: str) -> None:
    file = str(tmp_path / "keys")
    assert (
        CliRunner().invoke(main, ["keys", "add", "--label", "kiosk", "--file", file], env={VARIABLE: ""}).exit_code == 0
    )
    assert to_a_full_disk("keys", "list", "--file", file) == (EXIT_STATUS, SAID)
    for arguments in (("queue",), ("queue", "--json"), ("queue", "--watch"), ("doctor",)):
        environment = {"REDIS_URL": redis_url, "HEARLINE_STATE_DIR": str(tmp_path)}
        assert to_a_full_disk(*arguments, **environment) == (EXIT_STATUS, SAID)
        assert to_none(*arguments, **environment) == (EXIT_STATUS, SAID_OF_NONE)


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_key_that_could_not_be_shown_is_not_kept(tmp_path: Path, option: tuple[str, ...]) -> None:
    file = tmp_path / "keys"
    arguments = ("keys", "add", "--file", str(file), *option, "--label")
    for run in (to_a_full_disk, to_none):
        status, said = run(*arguments, "kiosk")
        assert (status, said[-1]) == (EXIT_STATUS, (SAID if run is to_a_full_disk else SAID_OF_NONE)[0])
        assert not file.exists()
    shown = CliRunner().invoke(main, [*arguments, "other"], env={VARIABLE: ""})
    assert shown.exit_code == 0
    before = file.read_bytes()
    assert to_a_full_disk(*arguments, "kiosk")[0] == EXIT_STATUS
    assert file.read_bytes() == before
    assert CliRunner().invoke(main, [*arguments, "kiosk"], env={VARIABLE: ""}).exit_code == 0


def test_workers_look_at_their_setup_without_an_output() -> None:
    run = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "workers", "--check-setup"],
        env=clean_environment(), stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("run", [to_a_full_disk, to_none])
@pytest.mark.parametrize("option", ["--json", "--host=127.0.0.1"])
def test_a_service_stops_in_good_order(tmp_path: Path, option: str, run: Callable[..., tuple[int, list[str]]]) -> None:
    table = procfile(tmp_path, web="web", worker="worker")
    environment = {"HEARLINE_STATE_DIR": str(tmp_path / "state"), "HEARLINE_DRAIN_S": "0"}
    status, said = run("up", "--procfile", str(table), "--port", str(free_port()), option, REDIS_URL="", **environment)
    assert (status, said) == (EXIT_STATUS, SAID if run is to_a_full_disk else SAID_OF_NONE)
    assert not (tmp_path / "state" / "up.json").exists()


def test_another_file_that_cannot_be_written_is_no_fault_of_standard_output(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    with (tmp_path / "out").open("w") as out:
        run = subprocess.run(
            [sys.executable, "-m", "ops.cli", "keys", "add", "--label", "kiosk", "--file", str(folder / "keys")],
            env=clean_environment(), stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert run.returncode == 3
    assert "standard output" not in run.stderr
    assert str(folder / "keys") in run.stderr


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(("stream",), ""), (("stream", "--json"), "1"), (("doctor",), ""), (("queue", "policy"), "")],
)
def test_a_reader_that_has_seen_enough_is_no_error(arguments: tuple[str, ...], unbuffered: str, redis_url: str) -> None:
    with fake_service() as service:
        audio = ("--synthetic", "3", "--speed", "0", "--url", service.url) if arguments[0] == "stream" else ()
        command = subprocess.Popen(
            [sys.executable, "-m", "ops.cli", *arguments, *audio],
            env=clean_environment(PYTHONUNBUFFERED=unbuffered, REDIS_URL=redis_url),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert command.stdout is not None
        command.stdout.close()  # before the first line: what `head -0` does
        _, said = command.communicate(timeout=60)
    assert command.returncode != EXIT_STATUS
    assert not said


def test_the_status_is_told() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "operations" / "start-and-stop.md"
    assert f"| {EXIT_STATUS} | standard output cannot be written" in page.read_text()
    for arguments in ([], ["stream"], ["load"]):
        told = " ".join(CliRunner().invoke(main, [*arguments, "--help"]).output.split())
        assert f"{EXIT_STATUS} standard output cannot be written" in told
