"""Models of strangers: refused with a message that names what is wrong, and without any effect. Cases E02 and E03."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tables import numbers, options, queries, random_checkpoint, table

from tabgrpc import LocalPool
from tabgrpc.core.geometry import Geometry
from tabgrpc.store.layout import header
from tabgrpc.wire.errors import NotReady, ServiceError

ASKED = queries(4)


@pytest.fixture(scope="module")
def honest(pair: LocalPool) -> np.ndarray:
    """A model `honest` that keeps K/V and its rows; its answers."""
    pair.client.fit(
        "honest",
        pair.client.upload(table(150, "classification")),
        options("classification", n_estimators=2, save="kv", training_rows=True),
    )
    return numbers(pair.client.predict("honest", ASKED))


@pytest.fixture
def copy(pair: LocalPool, honest: np.ndarray) -> Iterator[Path]:
    """A copy to be spoilt; afterwards nothing but itself may have changed."""
    path = pair.store / "spoilt"
    shutil.copytree(pair.store / "honest", path, symlinks=True)
    before = {each.name for each in pair.store.iterdir()}
    held = [worker.memory_used for worker in pair.client.pool().workers]
    yield path
    assert {each.name for each in pair.store.iterdir()} == before
    assert [worker.memory_used for worker in pair.client.pool().workers] == held, "a refused model is held somewhere"
    shutil.rmtree(path)
    assert np.array_equal(numbers(pair.client.predict("honest", ASKED)), honest)


def change(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **changes}))


def manifest_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "manifest.json").read_text())


def vouch(path: Path, name: str, data: bytes) -> None:
    """Writes a file of the model and has the manifest vouch for it, as a stranger can."""
    manifest = manifest_of(path)
    for entry in [manifest["members_file"], *manifest["files"], *manifest["data_files"]]:
        if entry["path"].endswith(name):
            (path / entry["path"]).write_bytes(data)
            entry |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


def geometry(**changes: int) -> dict[str, int]:
    return {**Geometry.of(150, 6).as_dict(), **changes}


def members(path: Path, **changes: np.ndarray) -> None:
    name = manifest_of(path)["members_file"]["path"]
    arrays = safetensors.numpy.load((path / name).read_bytes())
    vouch(path, "members.safetensors", safetensors.numpy.save({**arrays, **changes}))


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "rows": (lambda p: change(p, rows=10**11, geometry=geometry(rows=10**11, blocks_per_chunk=1 << 30)), "bytes of numbers are needed"),
    "more rows than any": (lambda p: change(p, rows=10**15), "rows is 1000000000000000"),
    "features": (lambda p: change(p, features=1 << 19, geometry=geometry(groups=1 << 19)), "another model"),
    "groups": (lambda p: change(p, geometry=geometry(groups=1 << 40)), "contradicts"),
    "members": (lambda p: change(p, members=1024), "another model"),
    "tile": (lambda p: change(p, geometry=geometry(tile=1 << 40)), "no geometry"),
    "chunks": (lambda p: change(p, geometry=geometry(block=1, quantum=1, blocks_per_chunk=1)), "bytes of numbers|missing"),
    "folder": (lambda p: change(p, folder="../honest"), "is not a version's"),
    "format": (lambda p: change(p, format=99), "format 99, .*reads format 1"),
    "policy": (lambda p: change(p, policy={**manifest_of(p)["policy"], "dtype": "float64"}), "bytes of numbers"),
    "no file": (lambda p: change(p, files=[]), "missing"),
    "path up": (lambda p: change(p, members_file={**manifest_of(p)["members_file"], "path": "../honest/manifest.json"}), "not a path"),
    "path from the root": (lambda p: change(p, members_file={**manifest_of(p)["members_file"], "path": "/etc/passwd"}), "not a path"),
    "no such checkpoint": (lambda p: change(p, checkpoint={**manifest_of(p)["checkpoint"], "path": "/no/such.ckpt"}), "not to be had"),
    "order": (lambda p: members(p, feature_shuffles=np.full((2, 6), 99)), "no order of 6"),
    "classes": (lambda p: members(p, class_shuffles=np.zeros((2, 3), np.int64)), "no order of 3"),
    "kept features": (lambda p: members(p, keep=np.ones(10**5, bool)), "features"),
    "normalisation": (lambda p: members(p, **{"power.lambdas": np.zeros(5)}), "lambdas"),
    "huge tensor": (
        lambda p: vouch(p, "chunk-000.safetensors", header({"k/0/0": ("F32", (8, 1 << 40, 16))}) + bytes(1 << 20)),
        "bytes of numbers|not a safetensors",
    ),
    "huge header": (lambda p: vouch(p, "members.safetensors", (1 << 60).to_bytes(8, "little") + bytes(64)), "not a safetensors"),
    "deep header": (lambda p: vouch(p, "column.safetensors", (200_000).to_bytes(8, "little") + b"[" * 200_000), "column|bytes of numbers"),
    "deep manifest": (lambda p: (p / "manifest.json").write_text("[" * 200_000), "not a manifest"),
    "empty file": (lambda p: vouch(p, "column.safetensors", b""), "column"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_E03_a_spoilt_model_is_refused(pair: LocalPool, copy: Path, what: str) -> None:
    """By the size, path, order or format that is wrong, before anything is allocated for it."""
    spoil, message = SPOILT[what]
    spoil(copy)
    with pytest.raises(NotReady, match=message):
        pair.client.load("spoilt")


@pytest.mark.parametrize("file", ["manifest.json", "members.safetensors", "column.safetensors", "chunk-000.safetensors"])
def test_E03_a_pickle_in_disguise_does_nothing(pair: LocalPool, copy: Path, file: str, tmp_path: Path) -> None:
    owned = tmp_path / "PWNED"

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(owned),)

    if file == "manifest.json":
        (copy / file).write_bytes(pickle.dumps(Hostile()))
    else:
        size = next(path for path in copy.rglob(file)).stat().st_size
        vouch(copy, file, pickle.dumps(Hostile()).ljust(size, b"\0"))
    with pytest.raises(NotReady, match=r"not a safetensors|can't be read|not a manifest"):
        pair.client.load("spoilt")
    assert not owned.exists()


def test_E03_a_pickle_as_the_checkpoint_does_nothing(pair: LocalPool, copy: Path, tmp_path: Path) -> None:
    owned = tmp_path / "PWNED"

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(owned),)

    path = tmp_path / "weights.ckpt"
    path.write_bytes(pickle.dumps(Hostile()))
    change(copy, checkpoint={**manifest_of(copy)["checkpoint"], "path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    with pytest.raises(NotReady, match="weights-only"):
        pair.client.load("spoilt")
    assert not owned.exists()


@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "pipe", "folder", "device"])
@pytest.mark.parametrize("file", ["manifest.json", "members.safetensors", "chunk-000.safetensors"])
def test_E03_what_is_no_plain_file_is_refused_and_not_waited_for(pair: LocalPool, copy: Path, kind: str, file: str) -> None:
    """A link could show another's file, a pipe or a device would be read for ever."""
    path = next(copy.rglob(file))
    other = pair.store / "honest" / path.relative_to(copy).parent
    match kind:
        case "link to a file":
            path.unlink()
            path.symlink_to(next((pair.store / "honest").rglob(file)))
        case "link to a folder" if file != "manifest.json":
            shutil.rmtree(path.parent)
            path.parent.symlink_to(pair.store / "honest" if not other.exists() else other)
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case "folder":
            path.unlink()
            path.mkdir()
        case "device":
            path.unlink()
            path.symlink_to("/dev/zero")
        case _:
            pytest.skip("the manifest's folder is the model's")
    with pytest.raises(ServiceError, match=r"link|plain file|is not a model|can't be read|has no manifest|no models/"):
        pair.client.load("spoilt")


def test_E02_other_weights_in_the_checkpoints_place_are_refused(pair: LocalPool, tmp_path: Path) -> None:
    """Of the same shape, under the same name: neither answers with them, nor mixes old K/V with new weights; said with what to do."""
    path = random_checkpoint(tmp_path / "weights", "classifier", seed=1)
    sent = pair.client.upload(table(150, "classification"))
    pair.client.fit("moved", sent, options("classification", n_estimators=1, checkpoint=str(path.with_suffix(".json"))))
    random_checkpoint(tmp_path / "weights", "classifier", seed=2)
    with pytest.raises(NotReady, match=r"was fitted with checkpoint .* put the old checkpoint back or fit again"):
        pair.client.load("moved")
    pair.client.delete("moved")


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "x\0", "", "/abs", "versions/1"])
def test_a_name_is_no_path(pair: LocalPool, honest: np.ndarray, name: str) -> None:
    """In every call that takes one."""
    calls: list[Callable[[str], object]] = [
        pair.client.load,
        pair.client.model,
        pair.client.pin,
        pair.client.delete,
        lambda each: list(pair.client.verify(each)),
        lambda each: pair.client.export(each, pair.store.parent / "out"),
    ]
    for call in calls:
        with pytest.raises((ServiceError, ValueError)):
            call(name)
    assert not (pair.store.parent / "out").exists()
    assert (pair.store / "honest" / "manifest.json").exists()
