"""The command line under test: as processes of their own, or in this process where only its words matter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_support import LIMIT_SECONDS, Ended, Served, customers, serve, tabgrpc, write_csv

from tabgrpc.client import Client
from tabgrpc.data import read_table
from tabgrpc.v1 import models_pb2


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs a command in this process, in the test's own folder: the same words and exit codes, but quick."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TABGRPC_")]:
        monkeypatch.delenv(name)

    def run(*words: object) -> Ended:
        from tabgrpc.cli.app import main

        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.csv and new.csv, the latter with the target still in it."""
    path = tmp_path_factory.mktemp("cli")
    write_csv(path / "train.csv", *customers(120, seed=1))
    write_csv(path / "new.csv", *customers(50, seed=2))
    return path


@pytest.fixture(scope="session")
def fitted(folder: Path) -> Ended:
    """`tabgrpc fit` on train.csv as a user types it: the model is folder/model. Fitted once for all tests."""
    options = ["--target", "churn", "--drop", "id", "--checkpoint", "mini", "--n-estimators", 2]
    ended = tabgrpc("fit", "train.csv", *options, "-o", "model", "--json", cwd=folder)
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="session")
def pool(folder: Path) -> Iterator[Served]:
    """One running pool for the tests that don't harm it, with a model `churn` of train.csv."""
    served = serve(folder)
    with Client(served.address) as client:
        table = read_table(folder / "train.csv", target="churn")
        options = models_pb2.FitOptions(target="churn", drop=["id"], checkpoint="mini", n_estimators=2)
        client.fit("churn", client.upload(table), options)
    yield served
    served.process.terminate()
    served.process.communicate(timeout=LIMIT_SECONDS)
