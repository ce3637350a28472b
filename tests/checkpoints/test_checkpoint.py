"""What a checkpoint must refuse, and that what it accepts is the network upstream TabICL would run."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tabicl import TabICLClassifier, TabICLRegressor
from tabicl._model.tabicl import TabICL

from tabgrpc.checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from tabgrpc.checkpoints.checkpoint import PACKAGED
from tabgrpc.checkpoints.convert import main as convert_main

TASKS = {"classification": "classifier", "regression": "regressor"}


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A copy of the packaged classifier that a test may break; its .json."""
    for suffix in (".json", ".safetensors"):
        shutil.copy(PACKAGED / f"mini-classifier{suffix}", tmp_path / f"mine{suffix}")
    return tmp_path / "mine.json"


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("task", TASKS)
def test_mini_is_small_half_precision_and_has_v2_parts(task: str) -> None:
    found = load_checkpoint("mini", task=task)
    assert found.kind == TASKS[task] and found.name == "mini"
    assert found.path.stat().st_size <= 8_000_000
    assert found.config["row_rope_interleaved"] is False and found.config["zero_init"] is False
    assert found.config["col_ssmax"] == found.config["icl_ssmax"] == "qassmax-mlp-elementwise"
    assert all(t.dtype == torch.float32 and torch.isfinite(t).all() for t in found.state_dict().values())
    record = json.loads(found.path.with_suffix(".json").read_text())
    assert record["format"] == 1 and record["licence"] == "Apache-2.0"


def test_json_safetensors_and_folder_are_one_checkpoint(pair: Path) -> None:
    found = [load_checkpoint(p) for p in (pair, pair.with_suffix(".safetensors"), pair.parent, str(pair))]
    assert len({f.sha256 for f in found}) == 1 and {f.kind for f in found} == {"classifier"}
    assert load_checkpoint(PACKAGED, task="regression").kind == "regressor"
    with pytest.raises(CheckpointError, match="holds 2 checkpoints"):
        load_checkpoint(PACKAGED)


def test_changed_weights_are_refused(pair: Path) -> None:
    loaded = load_checkpoint(pair)
    weights = pair.with_suffix(".safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1  # one bit of one weight
    weights.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="mine.safetensors: sha256"):
        load_checkpoint(pair)
    with pytest.raises(CheckpointError, match="changed after it was loaded"):
        loaded.state_dict()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2 is not 1"),
        ({"format": None}, "format None"),
        ({"kind": "ranker"}, "kind, config or sha256"),
        ({"kind": "regressor"}, "config is a classifier's"),
        ({"config": []}, "kind, config or sha256"),
        ({"sha256": "0" * 64}, "sha256 is not the one"),
    ],
)
def test_a_wrong_record_is_refused_in_one_line(pair: Path, changes: dict[str, object], message: str) -> None:
    _edit(pair, **changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(pair)
    assert "\n" not in str(caught.value) and "mine" in str(caught.value)


def test_wrong_kind_unknown_task_and_missing_files(pair: Path, tmp_path: Path) -> None:
    for bad in ({"task": "regression"}, {"task": "ranking"}):
        with pytest.raises(CheckpointError):
            load_checkpoint(pair, **bad)
    with pytest.raises(CheckpointError, match="say which task"):
        load_checkpoint("mini")
    with pytest.raises(CheckpointError, match="nowhere.json: No such file"):
        load_checkpoint(tmp_path / "nowhere.safetensors")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "weights.pkl")
    pair.with_suffix(".safetensors").unlink()
    with pytest.raises(CheckpointError, match="mine.safetensors: No such file"):
        load_checkpoint(pair)


class _Payload:
    """Unpickling this would leave a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (_touch, (str(self.mark),))


def _touch(path: str) -> None:
    Path(path).write_text("unpickled")


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_pickle_never_runs(tmp_path: Path, form: str) -> None:
    mark, bad = tmp_path / "mark", tmp_path / "bad.ckpt"
    record = {"config": {}, "state_dict": {"w": _Payload(mark)}}
    if form == "torch":
        torch.save(record, bad)
    else:
        bad.write_bytes(pickle.dumps(record))
    with pytest.raises(CheckpointError, match="bad.ckpt: not a weights-only"):
        load_checkpoint(bad)
    assert not mark.exists()


def test_importing_needs_no_torch() -> None:
    code = "import sys, tabgrpc.checkpoints as c; c.load_checkpoint('mini', task='regression'); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_save_then_load_rounds_to_half_once(tmp_path: Path) -> None:
    source = load_checkpoint("mini", task="classification")
    saved = save_checkpoint(tmp_path / "again", "classifier", source.config, source.state_dict(), {"steps": 1})
    again = saved.state_dict()
    for name, tensor in source.state_dict().items():
        assert torch.equal(again[name], tensor)
    with pytest.raises(CheckpointError, match="not finite in float16"):
        save_checkpoint(tmp_path / "big", "classifier", source.config, {"w": torch.tensor([1e6])})
    with pytest.raises(CheckpointError, match="kind must be"):
        save_checkpoint(tmp_path / "kind", "ranker", {}, {})


def _upstream(source: Checkpoint, path: Path, task: str) -> Path:
    assert convert_main(["mini", str(path), "--task", task]) == 0
    back = load_checkpoint(path, task=task)
    assert back.config == source.config and back.kind == source.kind
    return path


def test_converted_classifier_gives_upstreams_numbers(tmp_path: Path) -> None:
    source = load_checkpoint("mini", task="classification")
    path = _upstream(source, tmp_path / "mini.ckpt", "classification")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    peer = TabICLClassifier(model_path=path, n_estimators=2, device="cpu", use_amp=False).fit(X[:40], y[:40])
    ours = TabICL(**source.config).eval()
    ours.load_state_dict(source.state_dict())
    theirs = peer.predict_proba(X[40:])
    peer.model_ = ours  # the same estimator over weights that took the other way
    assert np.array_equal(theirs, peer.predict_proba(X[40:]))
    assert theirs.shape == (20, 3) and np.allclose(theirs.sum(1), 1)


def test_converted_regressor_gives_ordered_quantiles(tmp_path: Path) -> None:
    path = _upstream(load_checkpoint("mini", task="regression"), tmp_path / "mini.ckpt", "regression")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = X[:, 0] - 2 * X[:, 1]
    peer = TabICLRegressor(model_path=path, n_estimators=2, device="cpu", use_amp=False).fit(X[:60], y[:60])
    q = peer.predict(X[60:], output_type="quantiles", alphas=[0.1, 0.5, 0.9])
    assert q.shape == (20, 3) and (np.diff(q, axis=1) >= 0).all()
    assert np.corrcoef(q[:, 1], y[60:])[0, 1] > 0.7


def test_convert_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert_main([str(tmp_path / "none.json"), str(tmp_path / "out.ckpt")]) == 1
    assert "none.json" in capsys.readouterr().err
