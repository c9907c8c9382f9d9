"""A script's header, its text and its Python signature say the same.

Lua is the one interface that no type checker sees: a wrong order of arguments would only show as a wrong queue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import pytest

from queueing.job import CompleteStatus, EnqueueStatus
from queueing.keys import QueueKeys
from queueing.policy_store import NO_POLICY
from queueing.records import LEASED_VALUES, encode_fields
from queueing.scripts import LUA, load_script
from queueing.verbs import VERBS, Verb
from tests.support.queue_jobs import final

KEY_TYPES = {"hash", "string", "list", "set", "zset", "stream", "prefix"}
TAIL_TYPES = {"pairs", "strings", "ranks"}
ANNOTATIONS = {"int": "int", "float": "float", "str": "string"}
NUMBERED = re.compile(r"^--\s+(\d+)\s+(\w+)\s+(\w+)\s+(\S.*)$")

VERB_PARAMS = [pytest.param(verb, id=verb.SCRIPT) for verb in VERBS]


@dataclass(frozen=True)
class Row:
    number: int
    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class Header:
    title: str
    keys: list[Row]
    arguments: list[Row]
    codes: set[str]


def read_header(name: str) -> Header:
    lines = [line for line in (LUA / f"{name}.lua").read_text().splitlines() if line.startswith("--")]
    parts: dict[str, list[str]] = {"title": [], "KEYS": [], "ARGV": [], "RETURNS": []}
    part = "title"
    for line in lines:
        if line.startswith("-- @include"):
            break
        if found := re.match(r"-- (KEYS|ARGV|RETURNS)\b", line):
            part = found[1]
        else:
            parts[part].append(line)

    def rows(of: str) -> list[Row]:
        matches = [NUMBERED.match(line) for line in parts[of]]
        assert all(matches), f"{name}.lua: a line under {of} is not 'number name type meaning': {parts[of]}"
        return [Row(int(match[1]), match[2], match[3], match[4]) for match in matches if match]

    codes = {
        code for line in parts["RETURNS"] for code in re.findall(r"\b[A-Z]{2,}\b", re.split(r"\s{2,}\w*[a-z]", line)[0])
    }
    return Header(parts["title"][0], rows("KEYS"), rows("ARGV"), codes)


@pytest.mark.parametrize("verb", VERB_PARAMS)
def test_header_numbers_the_keys_as_python_passes_them(verb: type[Verb]) -> None:
    header = read_header(verb.SCRIPT)
    assert header.title.startswith(f"-- {verb.SCRIPT}: ")
    assert [row.number for row in header.keys] == list(range(1, len(verb.KEYS) + 1))
    assert [row.name for row in header.keys] == list(verb.KEYS)
    assert {row.type for row in header.keys} <= KEY_TYPES
    for row in header.keys:
        assert (row.type == "prefix") == row.name.endswith("_prefix")


@pytest.mark.parametrize("verb", VERB_PARAMS)
def test_header_numbers_the_arguments_as_python_passes_them(verb: type[Verb]) -> None:
    header = read_header(verb.SCRIPT)
    declared = fields(verb)
    assert [row.number for row in header.arguments] == list(range(1, len(declared) + 1))
    assert [row.name for row in header.arguments] == [field.name for field in declared]
    for row, field in zip(header.arguments, declared, strict=True):
        if row.type in TAIL_TYPES:
            assert str(field.type).startswith("tuple["), f"{row.name} is a tail, so a tuple in Python"
            assert row is header.arguments[-1], f"{row.name} takes all that is left, so it comes last"
        else:
            assert ANNOTATIONS[str(field.type)] == row.type, f"{row.name}: {field.type} in Python, {row.type} in Lua"
        if row.name.endswith("_ms"):
            assert "ms" in row.meaning, f"{row.name} must name its unit"


@pytest.mark.parametrize("verb", VERB_PARAMS)
def test_script_uses_what_it_is_given_and_nothing_else(verb: type[Verb]) -> None:
    source = (LUA / f"{verb.SCRIPT}.lua").read_text()
    assert {int(number) for number in re.findall(r"KEYS\[(\d+)\]", source)} == set(range(1, len(verb.KEYS) + 1))
    used = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", source)}
    assert used <= set(range(1, len(fields(verb)) + 1))
    tail = {len(fields(verb))} if read_header(verb.SCRIPT).arguments[-1].type in TAIL_TYPES else set()
    assert used | tail >= set(range(1, len(fields(verb)) + 1)), "an argument that nobody reads"


@pytest.mark.parametrize("verb", VERB_PARAMS)
def test_header_lists_every_code_that_the_script_can_return(verb: type[Verb]) -> None:
    header = read_header(verb.SCRIPT)
    body = re.sub(r"^--.*$", "", (LUA / f"{verb.SCRIPT}.lua").read_text(), flags=re.MULTILINE)
    returned = {code for line in body.splitlines() for code in re.findall(r"(?<!\()'([A-Z]{2,})'", line)}
    returned -= {"WITHSCORES", "WITHVALUES", "LIMIT", "MAXLEN", "NX", "PX"}
    if verb.SCRIPT == "cancel_partial":  # its code is the state that the job was in, in capitals
        returned |= {"QUEUED", "LEASED"}
    assert header.codes == returned


def test_status_enums_are_the_codes_of_their_scripts() -> None:
    def codes(*scripts: str) -> set[str]:
        return {code.lower() for script in scripts for code in read_header(script).codes - {NO_POLICY}}

    assert codes("enqueue") == {status.value for status in EnqueueStatus}
    assert codes("complete", "fail") == {status.value for status in CompleteStatus}


def test_every_script_file_is_a_verb_and_every_library_is_included() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} == {verb.SCRIPT for verb in VERBS}
    included = {
        name
        for path in LUA.glob("*.lua")
        for line in re.findall(r"^-- @include (.+)$", path.read_text(), re.MULTILINE)
        for name in line.split()
    }
    assert included == {path.stem for path in (LUA / "lib").glob("*.lua")}


@pytest.mark.parametrize("verb", VERB_PARAMS)
def test_every_key_of_a_verb_is_a_key_of_the_queue(verb: type[Verb]) -> None:
    keys = QueueKeys("main")
    for name in verb.KEYS:
        assert str(getattr(keys, name)).startswith("hl:{q:main}:")


@pytest.mark.parametrize("verb", VERB_PARAMS)
def test_no_number_becomes_text_in_lua(verb: type[Verb]) -> None:
    """Lua's tostring keeps 14 digits: a score would lose its milliseconds."""
    assert "tostring" not in load_script(verb.SCRIPT).source


def test_claim_returns_the_fields_that_python_reads() -> None:
    library = (LUA / "lib" / "leased.lua").read_text()
    fetched = re.findall(r"'(\w+)'", library)
    added = re.findall(r"job\[(\d+)\]", library)
    assert tuple(fetched) == LEASED_VALUES[: len(fetched)]
    assert [int(place) for place in added] == list(range(len(fetched) + 1, len(LEASED_VALUES) + 1))
    assert re.search(r"= id, lane, arrival, claimed, expiry\n", library)
    assert LEASED_VALUES[len(fetched) :] == ("id", "lane", "arrival_ms", "claimed_ms", "lease_until_ms")


def test_enqueue_writes_first_what_claim_reads() -> None:
    """A small hash is searched from its beginning: the order saves a tenth of a claim."""
    enqueue = (LUA / "enqueue.lua").read_text()
    first = re.findall(r"'(\w+)'", enqueue.split("redis.call('HSET', job_key,")[1].split("unpack")[0])
    given = [name for name, _ in encode_fields(final("s"))]
    assert (*first, *given, "cost_ms") == LEASED_VALUES[:11]
