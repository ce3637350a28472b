"""Models listed, shown, pinned, verified, exported: by a client and by the command line, of a pool and of a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tables import numbers, options, queries, table

from tabgrpc import LocalPool
from tabgrpc.client.exported import receive
from tabgrpc.store.files import DamagedModel
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import NotFound, NotReady

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def named(pair: LocalPool) -> LocalPool:
    """The pool with two models: `one` keeps K/V, `two` its rows."""
    for name, more in (("one", {"save": "kv"}), ("two", {"save": "repr", "training_rows": True})):
        sent = pair.client.upload(table(200, "classification"))
        pair.client.fit(name, sent, options("classification", n_estimators=2, **more))
    return pair


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A command in this process: exit code, standard output, standard error."""
    for name in [name for name in os.environ if name.startswith("TABGRPC_")]:
        monkeypatch.delenv(name)

    def run(*words: object) -> tuple[int, str, str]:
        from tabgrpc.cli.app import main

        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_ls_has_what_is_stored_and_not_loaded_too(named: LocalPool, run: Run) -> None:
    """A model of an earlier run of the pool is not lost from sight, nor is one that can't be read."""
    shutil.copytree(named.store / "one", named.store / "aside")
    shutil.copytree(named.store / "one", named.store / "broken")
    (named.store / "broken" / "manifest.json").write_text("{")
    try:
        code, out, _ = run("models", "ls", "--pool", named.address, "--json")
        found = {each["name"]: each for each in json.loads(out)["models"]}
        assert code == 0
        assert found["models/one/versions/1"]["loaded"] and not found["models/aside/versions/1"].get("loaded")
        assert "not a manifest" in found["models/broken"]["fault"]
        assert sum(int(each["bytes"]) for each in found["models/one/versions/1"]["tiers"] if each["tier"] == "host") > 0
        pages: list[str] = []
        token = ""
        while True:
            page = named.client._models.ListModels(pb.ListModelsRequest(page_size=1, page_token=token))
            pages += [model.name for model in page.models]
            if not (token := page.next_page_token):
                break
        assert pages == sorted(found), "page by page the same"
    finally:
        for name in ("aside", "broken"):
            named.client.delete(name)
    assert not (named.store / "aside").exists()


def test_show_says_what_a_model_reveals(named: LocalPool, run: Run) -> None:
    """Of a folder and of a pool alike; who keeps training rows is told so."""
    for place in (("show", named.store / "two"), ("show", "two", "--pool", named.address)):
        code, out, _ = run("models", *place)
        assert code == 0
        assert "every training row and target" in out and "a vector computed from each row" in out and "repr" in out
    code, out, _ = run("models", "show", named.store / "one")
    assert "no training row itself" in out and "keys and values" in out
    code, _, err = run("models", "show", named.store / "none")
    assert code == 2 and "no such model" in err
    code, _, err = run("models", "show", "none", "--pool", named.address)
    assert code == 2 and "no models/none" in err


def test_verify_names_the_file(named: LocalPool, run: Run, tmp_path: Path) -> None:
    """One flipped byte in any file of a model is found and named."""
    folder = tmp_path / "two"
    shutil.copytree(named.store / "two", folder)
    assert run("models", "verify", folder)[0] == 0
    assert run("models", "verify", "two", "--pool", named.address)[0] == 0
    files = sorted(path for path in folder.rglob("*.safetensors"))
    assert {path.name.split("-")[0].split(".")[0] for path in files} == {"members", "column", "rows", "data"}
    for path in files:
        data = path.read_bytes()
        for at in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            code, _, err = run("models", "verify", folder)
            assert code == 2 and str(path) in err, (path, at)
        path.write_bytes(data)
    assert run("models", "verify", folder)[0] == 0


def test_one_flipped_byte_is_found_by_a_load(named: LocalPool) -> None:
    """Whatever file it is in, the load names it, and the pool goes on."""
    shutil.copytree(named.store / "two", named.store / "bad")
    try:
        for path in sorted((named.store / "bad").rglob("*.safetensors")):
            if path.name.startswith("data"):
                continue  # not read where the rows' vectors are
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            with pytest.raises(NotReady, match=path.name):
                named.client.load("bad")
            path.write_bytes(data)
        named.client.load("bad")
    finally:
        named.client.delete("bad")


def test_export_is_the_model(named: LocalPool, run: Run, tmp_path: Path) -> None:
    """The copy gives the same bits, is refused over something, and is not left half."""
    target = tmp_path / "copy"
    assert run("models", "export", "two", "-o", target, "--pool", named.address)[0] == 0
    theirs = {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    ours = {path.relative_to(named.store / "two"): path.read_bytes() for path in (named.store / "two").rglob("*") if path.is_file()}
    assert theirs == ours
    code, _, err = run("models", "export", "two", "-o", target, "--pool", named.address)
    assert code == 2 and "is there already" in err
    shutil.copytree(target, named.store / "back")
    named.client.load("back", strict_bits=True)
    asked = queries(6)
    assert np.array_equal(numbers(named.client.predict("back", asked)), numbers(named.client.predict("two", asked)))
    named.client.delete("back")
    with pytest.raises(NotFound):
        named.client.export("none", tmp_path / "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


@pytest.mark.parametrize("hostile", ["../out", "/etc/out", "v1-00000000/../../out", "no manifest", "short", "other bytes"])
def test_a_pool_that_sends_nonsense_leaves_nothing(tmp_path: Path, hostile: str) -> None:
    """What comes from a pool is data of a stranger: no path outside of the folder, nothing half."""
    path = hostile if "/" in hostile else "v1-00000000/members.safetensors"
    size = {"short": 5}.get(hostile, 4)
    parts = [
        pb.ExportModelResponse(file=pb.ExportedFile(path=path, size=size, sha256="0" * 64)),
        pb.ExportModelResponse(piece=pb.ExportedPiece(offset=0, data=b"data", checksum=0xADF3F363)),
    ]
    with pytest.raises(DamagedModel):
        receive(iter(parts), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path.parent / "out").exists()


def test_pins(named: LocalPool, run: Run) -> None:
    """Shown, lasting through a refit, and gone when undone."""
    assert run("models", "pin", "one", "--pool", named.address)[0] == 0
    assert named.client.model("one").pinned
    named.client.fit("one", named.client.upload(table(200, "classification", 1)), options("classification", n_estimators=2))
    assert named.client.model("one").pinned and named.client.model("one").name.endswith("/2")
    assert run("models", "unpin", "one", "--pool", named.address)[0] == 0
    assert not named.client.model("one").pinned
    assert run("models", "pin", "none", "--pool", named.address)[0] == 2


def test_fit_says_how_the_model_is_kept(run: Run, tmp_path: Path) -> None:
    """Before anything is fitted: the bytes on disk, and that loading repeats work, with an estimate. A wrong size is a mistake."""
    import csv

    rows = table(80, "classification").to_pylist()
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    words = ("fit", tmp_path / "t.csv", "--target", "y", "--checkpoint", "mini", "--n-estimators", 2)
    code, _, err = run(*words, "--kv-limit", "much", "--dry-run")
    assert code == 2 and "--kv-limit: 'much' is not a number of bytes" in err
    code, _, err = run(*words, "--kv-limit", "100KiB", "--workers", 1, "-o", tmp_path / "m", "--resume")
    assert code == 0, err
    assert "kept        repr" in err and "loading repeats the attention of all rows to all rows" in err
    code, out, _ = run("models", "show", tmp_path / "m", "--json")
    assert code == 0 and json.loads(out)["saved"] == "repr"
    assert sorted(path.name for path in (tmp_path / "m").iterdir())[0] == "manifest.json", "no stages are left of a fit that ended"
