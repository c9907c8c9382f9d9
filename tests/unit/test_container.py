"""The Dockerfile and the compose example agree with the project, whether or not a daemon is there to build them."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

from ops.procfile import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "operations" / "container.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def instructions(text: str = DOCKERFILE) -> list[tuple[str, str]]:
    """(instruction, rest) in order, comments left out and continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", text))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    last = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def rests(name: str, stage: list[tuple[str, str]]) -> list[str]:
    return [rest for found, rest in stage if found == name]


def test_it_runs_as_a_numeric_user_that_is_not_root() -> None:
    names = [name for name, _ in final_stage()]
    (user,) = rests("USER", final_stage())
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert names.index("USER") < names.index("CMD")
    assert not [rest for rest in rests("COPY", final_stage()) if "--chown" in rest], "it can change its own code"
    assert not rests("RUN", final_stage())


def test_packages_are_the_locked_ones_and_come_before_the_code() -> None:
    build = [f"{name} {rest}" for name, rest in instructions()]
    installs = [line for line in build if "pip install" in line]
    assert "--require-hashes -r requirements.lock" in installs[0]
    assert "--no-deps" in installs[1]
    assert len(installs) == 2
    copied = [rest.split()[0] for rest in rests("COPY", instructions()) if not rest.startswith("--from")]
    assert copied.index("requirements.lock") == 0
    assert set(PACKAGES) <= set(shlex.split(" ".join(rests("COPY", instructions()))))


def test_nothing_else_enters_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert let_in == {*PACKAGES, "requirements.lock", "pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in let_in)


def test_it_holds_no_secret() -> None:
    for name, rest in instructions():
        assert name != "ARG"
        assert not re.search(r"(?i)password|secret|token|api_key|hl_[a-z2-7]{8}", rest), f"{name} {rest}"
    assert not re.search(r"hl_[a-z2-7]{8}", PAGE)
    assert not re.search(r"(?i)requirepass\W+\"[^$]", PAGE)


def test_commands_are_those_of_the_procfile_and_get_the_signals() -> None:
    (command,) = rests("CMD", final_stage())
    assert json.loads(command) == BUILT_IN["web"].split(), "the exec form: no shell between a signal and the program"
    assert not rests("ENTRYPOINT", instructions())
    in_compose = [json.loads(found) for found in re.findall(r"command: (\[\"python.*\])", PAGE)]
    assert in_compose == [BUILT_IN["web"].split(), BUILT_IN["worker"].split()]
    (health,) = rests("HEALTHCHECK", final_stage())
    probe = json.loads(health[health.index("CMD ") + 4 :])
    compile(probe[2], "healthcheck", "exec")
    assert "/health" in probe[2]


def test_the_example_gives_no_right_that_is_not_needed() -> None:
    services = re.findall(r"(?ms)^  (redis|web|worker):\n(.*?)(?=^  \w|^\w|^```)", PAGE)
    assert [name for name, _ in services] == ["redis", "web", "worker"]
    for name, text in services:
        assert "read_only: true" in text, name
        assert "cap_drop: [ALL]" in text, name
        assert "privileged: true" not in text
        assert ("HEARLINE_API_KEYS" in text) == (name == "web")
        assert ("ports:" in text) == (name == "web"), f"{name} is reachable from outside"
