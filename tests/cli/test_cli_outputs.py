"""What `predict` writes besides predictions, and the options of `fit` that make an ensemble."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Ended, Served, write_csv

from tabgrpc.cli.ensemble import Ensemble, methods_of
from tabgrpc.cli.errors import Mistake
from tabgrpc.cli.outputs import Outputs
from tabgrpc.v1 import models_pb2 as pb


def rows_of(ended: Ended) -> list[dict[str, str]]:
    assert ended.code == 0, ended.err
    return list(csv.DictReader(io.StringIO(ended.out)))


def test_outputs_of_a_regression_and_options_of_its_fit(here: Callable[..., Ended], pool: Served) -> None:
    """Catches an output that isn't asked for or isn't written, draws that don't go by the seed, an option that is dropped."""
    write_csv(Path("t.csv"), ["x", "z", "price"], [[i / 7, i % 5, i / 3 + i % 5] for i in range(60)])
    wanted = ["--target", "price", "--n-estimators", 2, "--checkpoint", "mini", "--quiet", "--pool", pool.address]
    other = ["--norm-methods", "quantile", "--feat-shuffle-method", "none", "--outlier-threshold", 2]
    assert here("fit", "t.csv", "-o", "outputs", *wanted).code == 0
    assert here("fit", "t.csv", "-o", "outputs-other", *wanted, *other).code == 0
    asked = ["t.csv", "-o", "-", "--quiet", "--pool", pool.address]
    asked += ["--variance", "--mode", "--draws", 3, "--seed", 5, "--quantiles", "0.1,0.9"]
    first = rows_of(here("predict", "outputs", *asked))
    assert list(first[0]) == ["prediction", "q0.1", "q0.9", "variance", "mode", "draw_0", "draw_1", "draw_2"]
    assert all(float(row["variance"]) >= 0 and float(row["q0.1"]) <= float(row["mode"]) <= float(row["q0.9"]) for row in first)
    assert first == rows_of(here("predict", "outputs", *asked))
    again = rows_of(here("predict", "outputs", *asked, "--seed", 6))
    assert [row["draw_0"] for row in again] != [row["draw_0"] for row in first]
    assert [row["variance"] for row in again] == [row["variance"] for row in first]
    changed = rows_of(here("predict", "outputs-other", *asked))
    assert [row["prediction"] for row in changed] != [row["prediction"] for row in first]
    for name in ("outputs", "outputs-other"):
        assert here("models", "rm", name, "--pool", pool.address).code == 0


def test_outputs_of_a_classification(here: Callable[..., Ended], folder: Path, pool: Served) -> None:
    common = ["churn", folder / "new.csv", "-o", "-", "--quiet", "--pool", pool.address]
    rows = rows_of(here("predict", *common, "--logits"))
    assert list(rows[0]) == ["prediction", "logit_leaves", "logit_stays"]
    assert all(row["prediction"] == max(("leaves", "stays"), key=lambda label: float(row[f"logit_{label}"])) for row in rows)
    vectors = rows_of(here("predict", *common, "--embeddings", "--keep", "id"))
    assert list(vectors[0])[:3] == ["id", "embedding_0", "embedding_1"] and len(vectors) == len(rows)
    for *wrong, word in (["--variance", "--variance"], ["--draws", 2, "--draws"], ["--embeddings", "--proba", "--embeddings goes alone"]):
        ended = here("predict", *common, *wrong)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and word in ended.err


def test_what_a_model_has_not_is_a_mistake() -> None:
    Outputs(proba=True, logits=True).check("m", "classification")
    Outputs(levels=(0.5,), variance=True, mode=True, draws=1).check("m", "regression")
    for wrong in (Outputs(logits=True), Outputs(proba=True)):
        with pytest.raises(Mistake, match="m is a regression model"):
            wrong.check("m", "regression")
    assert not Outputs().answers("proba_a") and Outputs(proba=True).answers("proba_a")
    assert Outputs().request() == pb.PredictRequest()


def test_an_ensembles_options_are_the_services() -> None:
    """Those at their defaults are left out: a pool of another version has its own."""
    assert Ensemble().into(pb.FitOptions()) == pb.FitOptions(n_estimators=8)
    told = Ensemble(3, 4, ("none",), "random", "latin", 2.0, 0.5, True).into(pb.FitOptions(target="t"))
    assert told == pb.FitOptions(
        target="t",
        n_estimators=3,
        random_state=4,
        norm_methods=["none"],
        feat_shuffle_method="random",
        class_shuffle_method="latin",
        outlier_threshold=2.0,
        softmax_temperature=0.5,
        average_probabilities=True,
    )
    assert methods_of("none, robust") == ("none", "robust")
    for wrong in ("nothing", "", "none,no"):
        with pytest.raises(Mistake, match="--norm-methods"):
            methods_of(wrong)
