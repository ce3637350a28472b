"""`tabgrpc models`: what a running pool has in its store, and what a model's folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tabgrpc.cli import options
from tabgrpc.cli.errors import Mistake
from tabgrpc.cli.pools import PoolChoice, client_of, model_place
from tabgrpc.cli.progress import Reporter, bytes_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tabgrpc.client import Client
    from tabgrpc.v1 import models_pb2

app = typer.Typer(help="The models of a running pool, and models' folders.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="MODEL", help="Its name.")]
Place = Annotated[str, typer.Argument(metavar="MODEL", help="Its folder; with --pool its name.")]


def _client(pool: str, timeout: float, reporter: Reporter) -> AbstractContextManager[Client]:
    return client_of(PoolChoice(pool, None, "auto", 1, timeout), None, reporter)


@app.command(name="ls")
def ls(
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    as_json: options.Json = False,
) -> None:
    """List the models of a pool's store, loaded or not."""
    with _client(pool, timeout, Reporter(quiet=True)) as client:
        models = list(client.models())
    if as_json:
        found: dict[str, Any] = {"models": [_plain(model) for model in models]}
        print(json.dumps(found, ensure_ascii=False))
        return
    from rich.table import Table

    from tabgrpc.cli.tables import show

    table = Table("model", "rows", "features", "classes", "members", "context", "on disk", "where", "checkpoint")
    for model in models:
        counts = [f"{model.rows:,}", str(len(model.features)), str(len(model.classes) or "-"), str(model.members)]
        sizes = [bytes_text(model.context_bytes), f"{bytes_text(model.stored_bytes)} {model.saved}"]
        table.add_row(model.name, *counts, *sizes, where(model), model.checkpoint)
    show(table)


@app.command(name="show")
def show(
    model: Place,
    pool: options.Pool = None,
    timeout: options.Timeout = 60.0,
    as_json: options.Json = False,
) -> None:
    """Tell all about a model, and what of the training data its files reveal."""
    if pool is None:
        about = stored(model)
    else:
        with _client(pool, timeout, Reporter(quiet=True)) as client:
            about = client.model(model_place(model, pool).name)
    if as_json:
        print(json.dumps(_plain(about), ensure_ascii=False))
        return
    for line in lines_of(about):
        print(line)


@app.command(name="pin")
def pin(
    model: Name,
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Keep a loaded model's context in the fastest memory, until the pool stops."""
    reporter = Reporter(quiet=quiet)
    with _client(pool, timeout, reporter) as client:
        client.pin(model_place(model, pool).name)
    reporter.line(f"pinned      {model}")


@app.command(name="unpin")
def unpin(
    model: Name,
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Let a model make room for others again."""
    reporter = Reporter(quiet=quiet)
    with _client(pool, timeout, reporter) as client:
        client.unpin(model_place(model, pool).name)
    reporter.line(f"unpinned    {model}")


@app.command(name="rm")
def rm(
    model: Name,
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Remove a model from the workers and from the pool's store."""
    place = model_place(model, pool)
    reporter = Reporter(quiet=quiet)
    with _client(pool, timeout, reporter) as client:
        client.delete(place.name)
    reporter.line(f"removed     {model}")


@app.command(name="verify")
def verify(
    model: Place,
    pool: options.Pool = None,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Read every file of a model against its digest. Exit code 2 if one is damaged or missing."""
    reporter = Reporter(quiet=quiet)
    files = size = 0
    faults: list[str] = []
    for file_size, fault in _verified(model, pool, timeout, reporter):
        files, size = files + 1, size + file_size
        if fault:
            faults.append(fault)
            reporter.line(f"damaged     {fault}")
    if as_json:
        print(json.dumps({"model": model, "files": files, "bytes": size, "faults": faults}, ensure_ascii=False))
    if faults:
        raise Mistake(f"{model}: {len(faults)} of {files} files damaged or missing, the first: {faults[0]}; fit it again, or copy it anew")
    reporter.line(f"verified    {model}: {files} files, {bytes_text(size)}")


def _verified(model: str, pool: str | None, timeout: float, reporter: Reporter) -> Iterator[tuple[int, str]]:
    """(bytes, what is wrong) of every file."""
    if pool is None:
        from tabgrpc.store.model import ModelDirectory

        for file, fault in ModelDirectory(_folder(model)).verify():
            yield file.size, fault
        return
    with _client(pool, timeout, reporter) as client:
        for answer in client.verify(model_place(model, pool).name):
            yield answer.size, answer.fault


@app.command(name="export")
def export(
    model: Name,
    output: Annotated[
        str | None, typer.Option("--output", "-o", envvar="TABGRPC_OUTPUT", metavar="FOLDER", help="Where to. Default: ./MODEL.")
    ] = None,
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Copy a model of a pool's store to a new folder here, every file checked."""
    place = model_place(model, pool)
    target = Path(output or place.name).absolute()
    if not target.parent.is_dir():
        raise Mistake(f"{target}: no folder {target.parent}")
    reporter = Reporter(quiet=quiet)
    with _client(pool, timeout, reporter) as client:
        try:
            client.export(place.name, target)
        except FileExistsError as error:
            raise Mistake(str(error)) from error
    reporter.line(f"exported    {model} to {target}")


def _folder(model: str) -> Path:
    place = model_place(model, None)
    assert place.store is not None
    folder = place.store / place.name
    if not folder.is_dir():
        raise Mistake(f"{folder}: no such model (a folder that `tabgrpc fit` writes)")
    return folder


def stored(model: str) -> models_pb2.Model:
    """A model's folder, described without any pool."""
    from tabgrpc.data import Schema
    from tabgrpc.scheduler.about import described
    from tabgrpc.store.model import ModelDirectory

    folder = _folder(model)
    manifest = ModelDirectory(folder).manifest()
    return described(folder.name, manifest, Schema.from_json(manifest.schema))


def where(model: models_pb2.Model) -> str:
    """Where a pool's model is, in a few words."""
    if model.fault:
        return "damaged"
    if not model.loaded:
        return "not loaded"
    tiers = ", ".join(f"{bytes_text(each.bytes)} {each.tier}" for each in model.tiers) or "loaded"
    return f"{tiers}, pinned" if model.pinned else tiers


def lines_of(model: models_pb2.Model) -> list[str]:
    """A model for people."""
    from tabgrpc.data.errors import counted
    from tabgrpc.v1 import models_pb2

    kind = "regression" if model.task == models_pb2.TASK_REGRESSION else f"{len(model.classes)} classes"
    told = {
        "model": model.name,
        "target": kind,
        "table": f"{model.rows:,} rows, {counted(len(model.features), 'feature')}",
        "ensemble": counted(model.members, "member"),
        "checkpoint": model.checkpoint,
        "policy": model.policy,
        "kept": f"{model.saved}: {bytes_text(model.stored_bytes)} on disk, {bytes_text(model.context_bytes)} of context when loaded",
        "written by": ", ".join(model.written_by),
        "fault": model.fault,
    }
    if model.loaded:
        told["where"] = where(model)
    lines = [f"{name:<11} {text}" for name, text in told.items() if text]
    lines += [f"{'warning':<11} {text}" for text in model.warnings]
    return lines + [f"{'reveals' if at == 0 else '':<11} {text}" for at, text in enumerate(model.reveals)]


def _plain(model: models_pb2.Model) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(model, preserving_proto_field_name=True)
