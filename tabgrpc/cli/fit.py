"""`tabgrpc fit`: a table becomes a model."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tabgrpc.cli import ensemble, options
from tabgrpc.cli.errors import Mistake
from tabgrpc.cli.pools import ModelPlace, PoolChoice, check_free, client_of, model_place
from tabgrpc.cli.progress import Reporter, bytes_text, seconds_text

if TYPE_CHECKING:
    import pyarrow as pa

    from tabgrpc.checkpoints.checkpoint import Checkpoint
    from tabgrpc.client import Client
    from tabgrpc.data import Schema
    from tabgrpc.v1 import models_pb2

SHOWN_CLASSES = 20
LOADING = {
    "kv": "loading reads it",
    "repr": "loading repeats the attention of all rows to all rows",
    "data": "loading repeats the fit",
}


def fit(
    table: options.Table,
    target: Annotated[str, typer.Option(envvar="TABGRPC_TARGET", help="The column to predict.")],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", envvar="TABGRPC_OUTPUT", metavar="MODEL", help="The model's folder; with --pool its name."
        ),
    ] = None,
    task: Annotated[
        options.Task, typer.Option(envvar="TABGRPC_TASK", help="What to predict; auto goes by the target's values.")
    ] = options.Task.auto,
    drop: Annotated[
        list[str] | None,
        typer.Option(envvar="TABGRPC_DROP", metavar="COL", help="A column to leave out; can be given again."),
    ] = None,
    workers: options.Workers = None,
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = 1,
    checkpoint: options.Checkpoint = "auto",
    n_estimators: ensemble.Members = 8,
    random_state: ensemble.RandomState = 0,
    norm_methods: ensemble.NormMethods = "none,power",
    feat_shuffle_method: ensemble.FeatureShuffle = ensemble.Shuffle.latin,
    class_shuffle_method: ensemble.ClassShuffle = ensemble.Shuffle.shift,
    outlier_threshold: ensemble.OutlierThreshold = 4.0,
    softmax_temperature: ensemble.Temperature = 0.9,
    average_probabilities: ensemble.AverageProbabilities = False,
    dtype: Annotated[
        options.DType, typer.Option(envvar="TABGRPC_DTYPE", help="What the model computes in.")
    ] = options.DType.float32,
    save: Annotated[
        options.Save,
        typer.Option(
            envvar="TABGRPC_SAVE",
            help="What is kept: kv loads at once; repr is much smaller, but loading repeats the attention over all rows; data repeats the "
            "whole fit; auto is kv up to --kv-limit.",
        ),
    ] = options.Save.auto,
    kv_limit: Annotated[
        str, typer.Option(envvar="TABGRPC_KV_LIMIT", metavar="BYTES", help="K/V of so much with --save auto, such as 8GiB; else repr.")
    ] = "32GiB",
    training_rows: Annotated[
        bool, typer.Option("--training-rows", envvar="TABGRPC_TRAINING_ROWS", help="Keep the training rows with the model.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            envvar="TABGRPC_RESUME",
            help="Keep finished stages on disk, and go on from those of a fit of this table that died.",
        ),
    ] = False,
    encoding: options.Encoding = "utf-8",
    delimiter: options.Delimiter = None,
    decimal: options.DecimalOption = options.Decimal.point,
    pool: options.Pool = None,
    timeout: options.Timeout = 60.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", envvar="TABGRPC_DRY_RUN", help="Say what it would cost, and stop.")
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Fit a model to TABLE and write it to MODEL. Prints what it will cost before it starts."""
    reporter = Reporter(quiet=quiet)
    if output is None and not dry_run:
        raise Mistake("say where the model goes with -o MODEL")
    place = model_place(output, pool) if output is not None else ModelPlace("unnamed", None)
    check_free(place)
    choice = PoolChoice(pool, workers, device.value, threads, timeout)
    wanted = Wanted(
        table,
        target,
        task.value,
        tuple(drop or ()),
        checkpoint,
        ensemble.Ensemble(
            n_estimators,
            random_state,
            ensemble.methods_of(norm_methods),
            feat_shuffle_method.value,
            class_shuffle_method.value,
            outlier_threshold,
            softmax_temperature,
            average_probabilities,
        ),
        dtype.value,
        encoding,
        delimiter,
        decimal.value,
        save.value,
        options.bytes_of(kv_limit, "--kv-limit"),
        training_rows,
        resume,
    )
    began = time.monotonic()
    with reporter.listening():
        rows, schema = read_training(wanted)
        if pool is None:
            name, _ = named_checkpoint(wanted.checkpoint, schema.task, reporter)
            wanted = dataclasses.replace(wanted, checkpoint=name)
        with client_of(choice, place.store, reporter) as client:
            sent = client.upload(rows)
            del rows
            try:
                plan = client.plan(sent, wanted.options())
                told = announce(wanted, schema, plan, reporter)
                if not dry_run:
                    model = fit_with_bar(client, place.name, sent, wanted.options(), plan.rows, reporter)
                    told |= announce_model(output, model, time.monotonic() - began, reporter)
            finally:
                with contextlib.suppress(Exception):  # whatever went wrong is what the user must see
                    client.drop_table(sent)
    if as_json:
        print(json.dumps({**told, "dry_run": dry_run, "warnings": reporter.warnings}, ensure_ascii=False))


@dataclass(frozen=True)
class Wanted:
    """What the command line says about a fit."""

    table: str
    target: str
    task: str = "auto"
    drop: tuple[str, ...] = ()
    checkpoint: str = "auto"
    members: ensemble.Ensemble = dataclasses.field(default_factory=ensemble.Ensemble)
    dtype: str = "float32"
    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: str = "."
    save: str = "auto"
    kv_limit: int = 0
    training_rows: bool = False
    resume: bool = False

    def options(self) -> models_pb2.FitOptions:
        """As the service takes it."""
        from tabgrpc.v1 import models_pb2

        tasks = {"classification": models_pb2.TASK_CLASSIFICATION, "regression": models_pb2.TASK_REGRESSION}
        options = models_pb2.FitOptions(
            target=self.target,
            task=tasks.get(self.task, models_pb2.TASK_UNSPECIFIED),
            drop=self.drop,
            checkpoint=self.checkpoint,
            dtype=self.dtype,
            save=self.save,
            kv_limit_bytes=self.kv_limit,
            training_rows=self.training_rows,
            resume=self.resume,
        )
        return self.members.into(options)


def read_training(wanted: Wanted) -> tuple[pa.Table, Schema]:
    """The table and its schema: all that can be wrong with a table is found here, before any worker is started."""
    from tabgrpc.data import Schema, UserError, check_trainable, read_table

    rows = read_table(
        wanted.table,
        target=wanted.target,
        encoding=wanted.encoding,
        delimiter=wanted.delimiter,
        decimal=wanted.decimal,
    )
    try:
        schema = Schema.fit(rows, wanted.target, wanted.task, wanted.drop)
        check_trainable(schema)
    except UserError as error:
        raise UserError(f"{wanted.table}: {error}") from None
    return rows, schema


def named_checkpoint(wanted: str, task: str, reporter: Reporter) -> tuple[str, Checkpoint]:
    """What to ask a local pool for, a name or an absolute path; a mistake is found before a worker is started."""
    from tabgrpc.checkpoints.resolve import resolve

    found, warning = resolve(wanted, task)
    if warning is not None:
        reporter.warn(warning)
    named = wanted in ("", "auto", "mini", "tabicl-v2")
    return found.name if named else str(Path(wanted).absolute()), found


def announce(wanted: Wanted, schema: Schema, plan: models_pb2.PlanModelResponse, reporter: Reporter) -> dict[str, Any]:
    """Tells what the fit is and what it will cost, with all warnings so far, and returns it as --json prints it."""
    told = summary(wanted, schema, plan)
    for line in lines_of(told):
        reporter.line(line)
    for text in plan.warnings:
        reporter.warn(text)
    reporter.release()
    return told


def fit_with_bar(
    client: Client, name: str, table: str, wanted: models_pb2.FitOptions, rows: int, reporter: Reporter
) -> models_pb2.Model:
    """Fits the table that the pool has, with a bar."""
    with reporter.bar(rows) as bar:
        return client.fit(name, table, wanted, progress=lambda at: bar.stage(at.stage, at.done, at.total))


def announce_model(output: str | None, model: models_pb2.Model, seconds: float, reporter: Reporter) -> dict[str, Any]:
    """Tells that the model is there, and returns what --json prints of it."""
    for text in model.warnings:
        reporter.warn(text)
    size, took = bytes_text(model.context_bytes), seconds_text(seconds)
    reporter.line(f"model       {output}: {size} of context, {took} in all")
    return {
        "model": output,
        "name": model.name,
        "context_bytes": model.context_bytes,
        "policy": model.policy,
        "seconds": round(seconds, 3),
    }


def summary(wanted: Wanted, schema: Schema, plan: models_pb2.PlanModelResponse) -> dict[str, Any]:
    """What the fit is and what it will cost, as --json prints it. Bytes are those of the busiest worker."""
    return {
        "table": wanted.table,
        "target": wanted.target,
        "task": schema.task,
        "rows": plan.rows,
        "features": len(schema.columns),
        "encoded_features": plan.features,
        "classes": dict(zip(plan.classes, plan.class_counts, strict=False)),
        "members": plan.members,
        "checkpoint": plan.checkpoint,
        "workers": plan.workers,
        "placement": plan.placement,
        "why": plan.why,
        "resident_bytes": plan.resident_bytes,
        "peak_bytes": plan.peak_bytes,
        "estimated_seconds": plan.fit_seconds,
        "estimated_predict_seconds": plan.predict_seconds,
        "contexts": plan.contexts,
        "tier": plan.tier,
        "save": plan.save,
        "stored_bytes": plan.stored_bytes,
        "load_seconds": plan.load_seconds,
    }


def lines_of(told: dict[str, Any]) -> list[str]:
    """The summary for people."""
    from tabgrpc.data.errors import counted

    classes = [f"{label} {count}" for label, count in told["classes"].items()]
    more = f" and {len(classes) - SHOWN_CLASSES} more" if len(classes) > SHOWN_CLASSES else ""
    kind = f"{len(classes)} classes: {', '.join(classes[:SHOWN_CLASSES])}{more}" if classes else told["task"]
    nodes = f" of {told['contexts']} contexts each" if told["contexts"] > 1 else ""
    encoded = "" if told["features"] == told["encoded_features"] else f" ({told['encoded_features']} encoded)"
    return [
        f"table       {told['table']}: {told['rows']:,} rows, {told['features']:,} features{encoded}",
        f"target      {told['target']}: {kind}",
        f"checkpoint  {told['checkpoint']}",
        f"ensemble    {counted(told['members'], 'member')}{nodes} on {counted(told['workers'], 'worker')}, divided by "
        + (told["why"] or told["placement"]),
        f"cost        {bytes_text(told['resident_bytes'])} a worker for good in {told['tier']}, "
        f"{bytes_text(told['peak_bytes'])} at the peak, about {seconds_text(told['estimated_seconds'])}; "
        f"a predict of 256 rows about {seconds_text(told['estimated_predict_seconds'])}",
        f"kept        {told['save']}: {bytes_text(told['stored_bytes'])} on disk, {LOADING[told['save']]}; "
        f"about {seconds_text(told['load_seconds'])} to load",
    ]
