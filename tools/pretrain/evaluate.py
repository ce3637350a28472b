"""Print how the mini checkpoints do on the suite beside linear models, random forests and gradient boosting.

    python -m tools.pretrain.evaluate [--task classification|regression] [--checkpoint PATH] [--only NAME ...]

Three folds, fixed seeds. Upstream TabICL runs the converted checkpoint, so nothing of this project but the weights is
measured. Probabilities are clipped at 0.001 for every model, so that no single confident error decides a mean.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from tabicl import TabICLClassifier, TabICLRegressor

from tabgrpc.checkpoints import load_checkpoint
from tabgrpc.checkpoints.convert import convert
from tools.pretrain.baselines import Scores, cached
from tools.pretrain.suite import GENERATED, Table, classification_tables, regression_tables

MODELS = ("linear", "forest", "boosting", "mini")
NEEDED = {"classification": ("log-loss", "accuracy"), "regression": ("R2",)}


def score(table: Table, make: Callable[[], Any], classification: bool) -> dict[str, float]:
    """Mean metrics over three folds: log-loss and accuracy, or R2 and the 10-90 % interval's coverage and width."""
    folds = (StratifiedKFold if classification else KFold)(3, shuffle=True, random_state=0)
    found: dict[str, list[float]] = {}
    for train, test in folds.split(table.X, table.y):
        model = make().fit(table.X.iloc[train], table.y[train])
        fold = (classes if classification else values)(model, table.X.iloc[test], table.y[test])
        for metric, value in fold.items():
            found.setdefault(metric, []).append(float(value))
    return {metric: float(np.mean(all_folds)) for metric, all_folds in found.items()}


def classes(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    p = np.clip(model.predict_proba(X), 1e-3, 1.0)
    p = p / p.sum(1, keepdims=True)
    hits = model.classes_[p.argmax(1)] == y
    return {"log-loss": log_loss(y, p, labels=model.classes_), "accuracy": hits.mean()}


def values(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    if not isinstance(model, TabICLRegressor):
        return {"R2": r2_score(y, model.predict(X))}
    out = model.predict(X, output_type=["mean", "quantiles"], alphas=[0.1, 0.9])
    low, high = out["quantiles"].T
    covered = (y >= low) & (y <= high)
    return {"R2": r2_score(y, out["mean"]), "covered": covered.mean(), "width": ((high - low) / y.std()).mean()}


def run(task: str, checkpoint: str, only: list[str], members: int) -> None:
    classification = task == "classification"
    source = load_checkpoint(checkpoint, task=task)
    tables = classification_tables() if classification else regression_tables()
    results: dict[str, Scores] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = convert(source, Path(folder) / "mini.ckpt")
        estimator = TabICLClassifier if classification else TabICLRegressor
        for table in tables:
            if only and table.name not in only:
                continue
            start = time.monotonic()
            all_scores = dict(cached(table, classification, lambda make, t=table: score(t, make, classification)))
            make = lambda: estimator(n_estimators=members, model_path=path, device="cpu")  # noqa: E731
            all_scores["mini"] = score(table, make, classification)
            results[table.name] = all_scores
            print(row(table.name, all_scores, task), f"{time.monotonic() - start:6.0f} s", flush=True)
    summary(results, task)


def header(task: str) -> str:
    cells = ["  ".join(f"{m:>7s}" for m in MODELS) + f" {metric}" for metric in NEEDED[task]]
    cells += ["covered", "  width"] if task == "regression" else []
    return f"{'':20s}" + "  | ".join(cells)


def row(name: str, scores: Scores, task: str) -> str:
    cells = ["  ".join(f"{scores[m][metric]:7.3f}" for m in MODELS) for metric in NEEDED[task]]
    cells += [f"{scores['mini'][metric]:7.3f}" for metric in ("covered", "width") if metric in scores["mini"]]
    return f"{name:20s}" + "  | ".join(cells)


def means(results: dict[str, Scores]) -> Scores:
    """Scores averaged over tables."""
    tables = list(results.values())
    return {m: {metric: float(np.mean([t[m][metric] for t in tables])) for metric in tables[0][m]} for m in MODELS}


def summary(results: dict[str, Scores], task: str) -> None:
    """The means, and whether they meet what the checkpoints are meant to reach."""
    mean = means(results)
    print(row("mean", mean, task))
    measured = {name: scores for name, scores in results.items() if name not in GENERATED}
    if measured:
        print(row("mean, not generated", means(measured), task))
    mini = mean["mini"]
    if task == "classification":
        checks = {
            "log-loss no worse than the forest's": mini["log-loss"] <= mean["forest"]["log-loss"],
            "accuracy within 0.5 point of boosting's": mini["accuracy"] >= mean["boosting"]["accuracy"] - 0.005,
            "no table lost by more than 10 points to boosting": all(
                r["mini"]["accuracy"] >= r["boosting"]["accuracy"] - 0.1 for r in results.values()
            ),
        }
    else:
        checks = {
            "R2 within 0.02 of boosting's": mini["R2"] >= mean["boosting"]["R2"] - 0.02,
            "the 10-90 % interval covers 75 to 85 %": 0.75 <= mini["covered"] <= 0.85,
        }
    for check, met in checks.items():
        print(f"{'met' if met else 'NOT met':8s}{check}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pretrain.evaluate", description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=tuple(NEEDED), help="one task; both without it")
    parser.add_argument("--checkpoint", default="mini", help="mini, or a checkpoint of the task")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="tables of the suite")
    parser.add_argument("--members", type=int, default=8, help="estimators of the ensemble")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*Numba not available.*|.*X does not have valid feature names.*")
    for task in [args.task] if args.task else list(NEEDED):
        source = load_checkpoint(args.checkpoint, task=task)
        print(f"\n{task}: {source.name} {source.kind}, sha256 {source.sha256[:12]}, {args.members} members, 3 folds")
        print(header(task))
        run(task, args.checkpoint, args.only, args.members)


if __name__ == "__main__":
    main()
