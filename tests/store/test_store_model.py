"""A model's directory: whole or not there, and damage is named. Cases E02 and E03."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.core.geometry import Geometry
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.store import files
from tabgrpc.store.files import DamagedModel, StoredFile
from tabgrpc.store.model import FORMAT, MANIFEST, Manifest, ModelDirectory, UnknownFormat, check_name

ARRAYS = {"mean": np.linspace(0, 1, 7), "classes": np.array([2, 0, 1]), "scalar": np.array(2.5), "strided": np.arange(12.0).reshape(3, 4).T}


def manifest(version: int = 1, folder: str = "v1-00000000", members_file: StoredFile | None = None, **changes) -> Manifest:
    values = {
        "version": version,
        "folder": folder,
        "task": "classification",
        "rows": 300,
        "schema": json.dumps({"columns": ["é", "b"]}),
        "geometry": Geometry.of(300, 7),
        "policy": NumericPolicy("float32", "cpu", "x86_64", "eager", (("torch", "2.13.0"),), "c"),
        "checkpoint": {"name": "mini", "kind": "classifier", "sha256": "0" * 64},
        "temperature": 0.9,
        "average_probabilities": False,
        "features": 7,
        "members": 2,
        "class_counts": (100, 200),
        "warnings": ("'id' was dropped",),
        "written_by": "0.1.0",
        "members_file": members_file or StoredFile(f"{folder}/members.safetensors", 3, "0" * 64),
        "files": (StoredFile(f"{folder}/member-000/chunk-000.safetensors", 10, "1" * 64),),
        **changes,
    }
    return Manifest(**values)


@pytest.fixture
def model(tmp_path) -> ModelDirectory:
    """One committed version with real files."""
    directory = ModelDirectory(tmp_path / "m")
    folder = directory.new_folder(1)
    directory.commit(manifest(1, folder, directory.write_members(folder, ARRAYS), files=()))
    return directory


def listing(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_manifest_and_back():
    """Catches a field that JSON turns into another type: tuples, dataclasses, floats."""
    there = manifest(temperature=0.1 + 0.2)
    assert Manifest.from_json(there.to_json(), "m") == there
    assert json.loads(there.to_json())["format"] == FORMAT == 1


@pytest.mark.parametrize("found", [99, 0, "1", None, 1.5])
def test_e02_another_format_is_refused_naming_both(found):
    """Before anything else is looked at, so that a newer layout doesn't fail with an obscure error."""
    text = json.dumps({"format": found, "nothing": "else"})
    with pytest.raises(UnknownFormat, match=rf"m/manifest.json has format {found!r}, .* reads format 1"):
        Manifest.from_json(text, "m/manifest.json")


@pytest.mark.parametrize("text", ["", "{", "null", "3", "[]", '"text"', "{}", '{"version": 1}', "\x00"])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(UnknownFormat, match="where is not a manifest"):
        Manifest.from_json(text, "where")


OPTIONAL = {"format", "files", "node_temperature", "save", "data_files", "written_with", "context_bytes"}


@pytest.mark.parametrize("name", [each for each in json.loads(manifest().to_json()) if each not in OPTIONAL])
def test_a_manifest_without_a_field_is_damaged(name):
    """What may be left out was added to the format later; the models before are read as they were meant."""
    values = json.loads(manifest().to_json())
    del values[name]
    with pytest.raises(DamagedModel, match="where is damaged"):
        Manifest.from_json(json.dumps(values), "where")


@pytest.mark.parametrize(
    "change",
    [
        {"geometry": 3},
        {"geometry": {**Geometry.of(3, 3).as_dict(), "block": 0}},
        {"geometry": {**Geometry.of(3, 3).as_dict(), "rows": "3"}},
        {"policy": {}},
        {"policy": {**asdict(manifest().policy), "dtype": "float8"}},
        {"files": [{"path": 3, "size": 3, "sha256": ""}]},
        {"files": [{"path": "a"}]},
        {"files": {}, "members_file": "x"},
        {"unknown": 1},
        {"rows": 10**18},
        {"rows": 301},
        {"members": 10**9},
        {"features": 0},
        {"features": 2.0},
        {"version": "1"},
        {"folder": "../v1-00000000"},
        {"folder": "v1"},
        {"save": "pickle"},
        {"task": "clustering"},
        {"temperature": 0},
        {"checkpoint": {"name": "mini"}},
        {"checkpoint": 3},
        {"geometry": {**Geometry.of(300, 7).as_dict(), "tile": 10**9}},
        {"geometry": {**Geometry.of(300, 7).as_dict(), "block": 1, "quantum": 1, "blocks_per_chunk": 1}},
        {"geometry": {**Geometry.of(300, 7).as_dict(), "block": 128.0}},
        {"data_files": [{"path": "a", "size": True, "sha256": ""}]},
    ],
    ids=str,
)
def test_a_manifest_with_a_wrong_field_is_damaged(change):
    with pytest.raises(DamagedModel, match="where is damaged"):
        Manifest.from_json(json.dumps({**json.loads(manifest().to_json()), **change}), "where")


@given(data=st.data())
def test_any_change_to_a_manifests_text_is_an_error_or_a_manifest(data):
    """Catches an error of another kind, which a user would see as a traceback."""
    text = manifest().to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(["", '"', "0", "[", "}", "null"])) + text[at + data.draw(st.integers(0, 3)) :]
    try:
        found = Manifest.from_json(changed, "where")
    except (DamagedModel, UnknownFormat):
        return
    assert found.geometry.blocks > 0


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b""])
def test_a_directory_without_a_readable_manifest_is_no_model(tmp_path, content):
    if content is not None:
        (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises((DamagedModel, UnknownFormat), match=str(tmp_path)):
        ModelDirectory(tmp_path).manifest()
    assert ModelDirectory(tmp_path / "nowhere").next_version() == 1
    with pytest.raises(DamagedModel, match="nowhere is not a model"):
        ModelDirectory(tmp_path / "nowhere").manifest()


def test_members_come_back_bit_for_bit(model):
    received = model.read_members(model.manifest().members_file)
    assert received.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (received[name].dtype, received[name].shape) == (array.dtype, array.shape)
        assert received[name].tobytes() == np.ascontiguousarray(array).tobytes()


def test_commit_replaces_the_manifest_and_removes_only_older_versions(model):
    """Catches a user's own folder, or what a link points to, that is removed with the old version."""
    old = model.manifest().folder
    for name in ("v2-draft of the paper", "vacation-2024", "v1", "notes"):
        (model.path / name).mkdir()
    outside = model.path.parent / "v9-0000000f"
    outside.mkdir()
    (outside / "x").write_text("")
    (model.path / "v9-0000000f").symlink_to(outside)
    assert model.next_version() == 2
    folder = model.new_folder(2)
    model.commit(manifest(2, folder, model.write_members(folder, ARRAYS), files=()))
    assert model.manifest().version == 2
    found = {path.name for path in model.path.iterdir()}
    assert found == {MANIFEST, folder, "v2-draft of the paper", "vacation-2024", "v1", "notes", "v9-0000000f"}
    assert (outside / "x").exists()
    assert old not in found


def test_a_failed_commit_leaves_the_old_version(model, monkeypatch):
    """A crash between writing and renaming: the manifest is the old one, and no temporary file stays."""
    folder = model.new_folder(2)
    new = manifest(2, folder, model.write_members(folder, ARRAYS), files=())
    before, were = (model.path / MANIFEST).read_bytes(), listing(model.path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        model.commit(new)
    assert (model.path / MANIFEST).read_bytes() == before
    assert listing(model.path) == were


def test_discard_leaves_nothing_of_a_first_version_and_all_of_a_former_one(model, tmp_path):
    new = ModelDirectory(tmp_path / "new")
    folder = new.new_folder(1)
    new.write_members(folder, ARRAYS)
    new.discard(folder)
    assert not new.path.exists()
    were = listing(model.path)
    folder = model.new_folder(2)
    model.write_members(folder, ARRAYS)
    model.discard(folder)
    assert listing(model.path) == were
    assert model.read_members(model.manifest().members_file)["scalar"] == 2.5


def test_new_folders_are_new(tmp_path):
    """Two writers of one model never share a folder."""
    directory = ModelDirectory(tmp_path / "a" / "b")
    assert len({directory.new_folder(1) for _ in range(10)}) == 10


def test_damage_to_a_file_is_named(model):
    file = model.manifest().members_file
    path = model.path / file.path
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[-1] ^= 1
    for damaged, message in ((bytes(flipped), "SHA-256 differs"), (data[:-1], f"instead of {file.size}"), (data + b"\0", "instead of")):
        path.write_bytes(damaged)
        with pytest.raises(DamagedModel, match=message) as error:
            model.read_members(file)
        assert str(path) in str(error.value)
    path.unlink()
    with pytest.raises(DamagedModel, match="can't be read: No such file") as error:
        model.read_members(file)
    assert str(path) in str(error.value)


def test_e03_a_pickle_for_a_file_does_nothing(model, tmp_path):
    """Even where the manifest vouches for its digest."""
    owned = tmp_path / "PWNED"

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(owned),)

    file = files.write(model.path, f"{model.manifest().folder}/hostile.safetensors", pickle.dumps(Hostile()))
    with pytest.raises(DamagedModel, match="not a safetensors file"):
        model.read_members(file)
    (model.path / MANIFEST).write_bytes(pickle.dumps(Hostile()))
    with pytest.raises((DamagedModel, UnknownFormat)):
        model.manifest()
    assert not owned.exists()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret", "v1/../../secret", "", ".", "..", "a/\0b", "link/secret", "file-link", "dangling"]
)
def test_e03_a_path_out_of_the_model_is_refused(tmp_path, path):
    """A manifest is data of a stranger: it may name no other file, for reading or writing, by name or by a link."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    directory = tmp_path / "m"
    directory.mkdir()
    (directory / "link").symlink_to(tmp_path)
    (directory / "file-link").symlink_to(secret)
    (directory / "dangling").symlink_to(tmp_path / "new")
    with pytest.raises(DamagedModel):
        files.read(directory, StoredFile(path, 1, "043a718774c572bd8a25adbeb1bfcd5c0256ae11cecf9f9c3f925d0e52beaf89"))
    with pytest.raises(DamagedModel):
        files.write(directory, path, b"overwritten")
    assert secret.read_text() == "s"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "0", "x" * 128])
def test_good_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "-a", "a/b", "../a", "a b", "é", "a\n", "x" * 129, "a\0"])
def test_bad_names(name):
    """A name becomes a directory and part of a resource name."""
    with pytest.raises(ValueError, match="starts with a letter or digit"):
        check_name(name)
