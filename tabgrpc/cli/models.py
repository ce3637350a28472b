"""`tabgrpc models`: what a running pool has in its store."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tabgrpc.cli import options
from tabgrpc.cli.pools import PoolChoice, client_of, model_place
from tabgrpc.cli.progress import Reporter, bytes_text

app = typer.Typer(help="The models of a running pool.", no_args_is_help=True)


@app.command(name="ls")
def ls(
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    as_json: options.Json = False,
) -> None:
    """List the models."""
    from google.protobuf.json_format import MessageToDict

    with client_of(PoolChoice(pool, None, "auto", 1, timeout), None, Reporter(quiet=True)) as client:
        models = list(client.models())
    if as_json:
        found: dict[str, Any] = {"models": [MessageToDict(model, preserving_proto_field_name=True) for model in models]}
        print(json.dumps(found, ensure_ascii=False))
        return
    from rich.table import Table

    from tabgrpc.cli.tables import show

    table = Table("model", "rows", "features", "classes", "members", "context", "checkpoint")
    for model in models:
        counts = [f"{model.rows:,}", str(len(model.features)), str(len(model.classes) or "-"), str(model.members)]
        table.add_row(model.name, *counts, bytes_text(model.context_bytes), model.checkpoint)
    show(table)


@app.command(name="rm")
def rm(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Its name.")],
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Remove a model from the workers and from the pool's store."""
    place = model_place(model, pool)
    reporter = Reporter(quiet=quiet)
    with client_of(PoolChoice(pool, None, "auto", 1, timeout), None, reporter) as client:
        client.delete(place.name)
    reporter.line(f"removed     {model}")
