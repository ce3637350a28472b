"""Versions of a model: what is served is what was fitted or loaded last, whole, and nobody's answer mixes two of them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tables import numbers, options, queries, table

from tabgrpc import LocalPool
from tabgrpc.store.model import BeingWritten, ModelDirectory
from tabgrpc.wire.errors import AlreadyExists, NotFound, NotReady


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with LocalPool(2, store=tmp_path_factory.mktemp("store")) as pool:
        yield pool


def fitted(pool: LocalPool, name: str, seed: int, rows: int = 100) -> np.ndarray:
    """Fits a table of its own seed and returns its answers."""
    sent = pool.client.upload(table(rows, "regression", seed))
    pool.client.fit(name, sent, options("regression", n_estimators=2, placement="rows"))
    return numbers(pool.client.predict(name, queries(5)))


def test_another_model_in_the_place_of_a_served_one_is_loaded_whole(pool: LocalPool) -> None:
    """Same name, same version number, same shape, other files: workers must not keep the old shards under the new schema."""
    first, second = fitted(pool, "first", 1), fitted(pool, "second", 2)
    assert not np.array_equal(first, second)
    shutil.rmtree(pool.store / "first")
    shutil.copytree(pool.store / "second", pool.store / "first")
    pool.client.load("first", strict_bits=True)
    assert np.array_equal(numbers(pool.client.predict("first", queries(5))), second)


def test_a_stream_keeps_its_version_through_a_refit(pool: LocalPool) -> None:
    """Rows of one stream come from one version, to the end; the next stream has the new one."""
    old = fitted(pool, "moving", 3)
    refitted = threading.Event()
    new: list[np.ndarray] = []

    def parts() -> Iterator[pa.Table]:
        yield queries(5)
        new.append(fitted(pool, "moving", 4))  # the stream's answers so far are of the old version, which is replaced now
        refitted.set()
        for _ in range(3):
            yield queries(5)

    answers = [numbers(answer) for answer in pool.client.stream_predict("moving", parts())]
    assert refitted.is_set()
    assert len(answers) == 4
    assert all(np.array_equal(answer, old) for answer in answers)
    assert np.array_equal(numbers(pool.client.predict("moving", queries(5))), new[0])
    held = {name for worker in pool._server.scheduler.pool.serving() for name in _held(worker)}
    assert not [name for name in held if name.startswith("models/moving/versions/1@")], "the old version's shards are still held"


def _held(worker: object) -> list[str]:
    from tabgrpc.internal.v1.shards_pb2 import GetWorkerRequest

    return list(worker.stub.GetWorker(GetWorkerRequest()).model_versions)  # type: ignore[attr-defined]


def test_a_failed_refit_leaves_the_old_version_serving(pool: LocalPool) -> None:
    """Case X2 for the pool: nothing half-written, the same answers, the same version."""
    old = fitted(pool, "steady", 5)
    before = sorted(path.name for path in (pool.store / "steady").iterdir())
    sent = pool.client.upload(table(100, "regression", 6))
    with pytest.raises(Exception, match="no-such"):
        pool.client.fit("steady", sent, options("regression", checkpoint="/no-such/checkpoint.json"))
    assert sorted(path.name for path in (pool.store / "steady").iterdir()) == before
    assert np.array_equal(numbers(pool.client.predict("steady", queries(5))), old)
    assert pool.client.model("steady").name == "models/steady/versions/1"


def test_a_directory_has_one_writer(pool: LocalPool) -> None:
    """Two processes that fit into one directory would remove each other's files."""
    fitted(pool, "shared", 7)
    directory = ModelDirectory(pool.store / "shared")
    sent = pool.client.upload(table(100, "regression", 8))
    with directory.writing() as (version, _):
        assert version == 2
        with pytest.raises(AlreadyExists, match="being written"):
            pool.client.fit("shared", sent, options("regression", n_estimators=1))
        with pytest.raises(BeingWritten), directory.writing():
            pass
    assert directory.manifest().version == 1


def test_what_cannot_be_read_is_not_written_over(pool: LocalPool) -> None:
    """A directory of a newer format stays as it is."""
    fitted(pool, "newer", 9)
    manifest = pool.store / "newer" / "manifest.json"
    text = manifest.read_text().replace('"format": 1', '"format": 99')
    manifest.write_text(text)
    sent = pool.client.upload(table(100, "regression", 9))
    with pytest.raises(NotReady, match=r"format 99.*reads format 1"):
        pool.client.fit("newer", sent, options("regression", n_estimators=1))
    assert manifest.read_text() == text


def test_deleting_a_model_removes_its_own_files_only(pool: LocalPool) -> None:
    """A model served from another's directory owns no files; a version's name is no model's."""
    kept = fitted(pool, "kept", 10)
    pool.client.load("alias", "kept")
    assert np.array_equal(numbers(pool.client.predict("alias", queries(5))), kept)
    pool.client.delete("alias")
    assert (pool.store / "kept" / "manifest.json").exists()
    assert np.array_equal(numbers(pool.client.predict("kept", queries(5))), kept)
    with pytest.raises(Exception, match="versions"):
        pool.client.delete("kept/versions/1")
    pool.client.delete("kept")
    assert not Path(pool.store / "kept").exists()
    with pytest.raises(NotFound):
        pool.client.predict("kept", queries(1))
