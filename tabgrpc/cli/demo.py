"""`tabgrpc demo`: the whole way on a real table, with the command line as a user has it, beside two peers."""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tabgrpc.cli import options
from tabgrpc.cli.ensemble import Ensemble
from tabgrpc.cli.errors import Mistake, PoolFailure
from tabgrpc.cli.fit import Wanted, named_checkpoint, read_training
from tabgrpc.cli.outputs import Outputs
from tabgrpc.cli.predict import Asked, answer, opened
from tabgrpc.cli.progress import Reporter, seconds_text

if TYPE_CHECKING:
    import numpy as np

    from tabgrpc.checkpoints.checkpoint import Checkpoint

TRAIN, NEW = "train.csv", "new.csv"
TARGET = "diagnosis"
HELD_OUT = 143
SEED = 0
MEMBERS = 8
LIMIT_SECONDS = 300.0


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            envvar="TABGRPC_DEMO_DIR",
            metavar="DIR",
            show_default=False,
            help="Keep the files here. Default: a temporary folder.",
        ),
    ] = None,
    checkpoint: options.Checkpoint = "mini",
) -> None:
    """Fit and predict a real table on two workers, beside two peers; one and three workers must give the same bytes.

    Exit code 3 if they don't.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        place = (
            folder
            if folder is not None
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabgrpc-demo-")))
        )
        place.mkdir(parents=True, exist_ok=True)
        data = write_data(place)
        reporter = Reporter()
        checkpoint, source = named_checkpoint(checkpoint, "classification", reporter)
        reporter.release()
        print(f"Breast cancer data in {place}: {TRAIN} {data.train}, {NEW} {data.test}\n", flush=True)
        first = through_cli(place, checkpoint, workers=2)
        compare(place, data, first, source)
        print("\nThe same fit and predict with one worker, then with three, from Python ...", flush=True)
        runs = [first, *(through_python(place, data, checkpoint, workers) for workers in (1, 3))]
        same = len({run.digest for run in runs}) == 1
        print("\nThe same bits, however many workers? SHA-256 of the prediction files:")
        for run in sorted(runs, key=lambda each: each.workers):
            print(f"  {run.workers} worker{'s' if run.workers > 1 else ' '}  {run.digest}")
        print(f"{'Identical' if same else 'NOT identical'}. {seconds_text(time.monotonic() - began)} in all.")
        if not same:
            raise PoolFailure("the predictions of 1, 2 and 3 workers differ")


@dataclass(frozen=True)
class Data:
    """The two files, their sizes in words, and the held-out rows' labels, which the file to predict lacks."""

    fit: Path
    predict: Path
    train: str
    test: str
    labels: list[str]


@dataclass(frozen=True)
class Run:
    """One fit and predict."""

    workers: int
    checkpoint: str
    predictions: Path

    @property
    def digest(self) -> str:
        """SHA-256 of the file of predictions."""
        return hashlib.sha256(self.predictions.read_bytes()).hexdigest()


def write_data(place: Path) -> Data:
    """train.csv with the target, new.csv without it: a random quarter of the rows, the same in every run."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    order = np.random.default_rng(SEED).permutation(len(bunch.data))
    labels = [str(bunch.target_names[code]) for code in bunch.target]
    names = [str(name) for name in bunch.feature_names]
    held, rest = order[:HELD_OUT], order[HELD_OUT:]
    fit, predict = place / TRAIN, place / NEW
    with fit.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, TARGET])
        writer.writerows([*map(float, bunch.data[row]), labels[row]] for row in rest)
    with predict.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(list(map(float, bunch.data[row])) for row in held)
    return Data(
        fit, predict, f"{len(rest)} rows x {len(names)} columns", f"{len(held)} rows", [labels[row] for row in held]
    )


def through_cli(place: Path, checkpoint: str, workers: int) -> Run:
    """`tabgrpc fit` and `tabgrpc predict` in processes of their own, shown as typed."""
    model, answers, few = "model", f"predictions-{workers}.csv", ["--workers", workers]
    asked = ["--target", TARGET, "--checkpoint", checkpoint, "--n-estimators", MEMBERS]
    told = command(place, "fit", TRAIN, *asked, "-o", model, "--json", *few)
    command(place, "predict", model, NEW, "-o", answers, "--proba", *few)
    return Run(workers, str(json.loads(told)["checkpoint"]), place / answers)


def through_python(place: Path, data: Data, checkpoint: str, workers: int) -> Run:
    """The same fit and predict with a pool of this process's own, which saves the start of two processes."""
    from tabgrpc.client import LocalPool

    asked = Asked("model", str(data.predict), str(place / f"predictions-{workers}.csv"), Outputs(proba=True))
    wanted = Wanted(str(data.fit), TARGET, checkpoint=checkpoint, members=Ensemble(MEMBERS, SEED))
    quiet = Reporter(quiet=True)
    with quiet.listening(), LocalPool(workers, device="cpu", store=place / f"store-{workers}") as pool:
        rows, schema = read_training(wanted)
        model = pool.client.fit("model", pool.client.upload(rows), wanted.options())
        answer(pool.client, "model", asked, schema, opened(asked, schema, quiet), quiet)
    return Run(workers, model.checkpoint, Path(asked.output))


def command(place: Path, *words: object) -> str:
    """Runs `tabgrpc WORDS` in the folder and returns its stdout; its stderr is ours. Raises as it ended."""
    arguments = [str(word) for word in words]
    print(f"$ tabgrpc {shlex.join(arguments)}", flush=True)
    line = [sys.executable, "-m", "tabgrpc", *arguments]
    try:
        done = subprocess.run(line, cwd=place, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PoolFailure(f"tabgrpc {arguments[0]} took longer than {seconds_text(LIMIT_SECONDS)}") from None
    if done.returncode:
        failure = Mistake if done.returncode == 2 else PoolFailure
        raise failure(f"tabgrpc {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout


def compare(place: Path, data: Data, run: Run, source: Checkpoint) -> None:
    """Prints the accuracy of tabgrpc and of its two peers on the held-out rows."""
    import numpy as np
    import pandas as pd

    answers = pd.read_csv(run.predictions)
    truth = np.array(data.labels)
    ours = answers[[name for name in answers.columns if name.startswith("proba_")]].to_numpy()
    train, new = pd.read_csv(data.fit), pd.read_csv(data.predict)
    features, labels = train.drop(columns=TARGET), train[TARGET].to_numpy()
    upstream_labels, upstream = upstream_answers(place, source, features, labels, new)
    baseline = logistic_regression(features, labels, new)
    difference = np.abs(ours - upstream).max()
    print(f"\nCheckpoint: {run.checkpoint}. Accuracy on the {len(truth)} held-out rows:")
    print(f"  tabgrpc, 2 workers   {accuracy(answers['prediction'].to_numpy(), truth)}")
    print(
        f"  TabICL, one process  {accuracy(upstream_labels, truth)}   the same checkpoint, members and seed;", end=" "
    )
    print(f"its probabilities differ by at most {difference:.1e}")
    print(f"  logistic regression  {accuracy(baseline, truth)}   scikit-learn's, columns standardised")


def accuracy(labels: Any, truth: Any) -> str:
    return f"{(labels == truth).mean():.3f}"


def upstream_answers(
    place: Path, source: Checkpoint, features: Any, labels: Any, new: Any
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Labels and probabilities by tabicl's own estimator, in this process, on the CPU."""
    import torch
    from tabicl import TabICLClassifier

    from tabgrpc.checkpoints.convert import convert

    torch.set_num_threads(1)
    path = convert(source, place / "upstream.ckpt")
    peer = TabICLClassifier(
        model_path=path, n_estimators=MEMBERS, random_state=SEED, device="cpu", allow_auto_download=False
    )
    peer.fit(features, labels)
    probabilities = peer.predict_proba(new)
    return peer.classes_[probabilities.argmax(axis=1)], probabilities


def logistic_regression(features: Any, labels: Any, new: Any) -> Any:
    """Labels by the baseline that anyone would try first."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features, labels).predict(new)
