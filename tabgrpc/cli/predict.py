"""`tabgrpc predict`: a model answers the rows of a table, streamed in constant memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tabgrpc.cli import options, outputs
from tabgrpc.cli.errors import Mistake
from tabgrpc.cli.pools import ModelPlace, PoolChoice, client_of, model_place
from tabgrpc.cli.progress import Reporter

if TYPE_CHECKING:
    import pyarrow as pa

    from tabgrpc.client import Client
    from tabgrpc.data import Schema
    from tabgrpc.data.cells import Kind
    from tabgrpc.v1 import models_pb2

TABLE_BYTES = 16 << 20
BATCH_ROWS = 2048  # the bar moves with each batch


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's folder; with --pool its name.")],
    table: options.Table,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            envvar="TABGRPC_OUTPUT",
            metavar="OUT",
            help="A .csv, .tsv, .parquet or .arrow file, or - for CSV on stdout.",
        ),
    ],
    proba: outputs.Proba = False,
    logits: outputs.Logits = False,
    quantiles: outputs.Quantiles = None,
    variance: outputs.Variance = False,
    mode: outputs.Mode = False,
    draws: outputs.Draws = 0,
    seed: outputs.Seed = 0,
    embeddings: outputs.Embeddings = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TABGRPC_KEEP", metavar="COL", help="A column of TABLE to copy to OUT; can be given again."
        ),
    ] = None,
    workers: options.Workers = None,
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = 1,
    strict_bits: Annotated[
        bool,
        typer.Option(
            "--strict-bits",
            envvar="TABGRPC_STRICT_BITS",
            help="Refuse a model that was fitted under another numeric policy.",
        ),
    ] = False,
    encoding: options.Encoding = "utf-8",
    delimiter: options.Delimiter = None,
    decimal: options.DecimalOption = options.Decimal.point,
    pool: options.Pool = None,
    timeout: options.Timeout = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Predict the rows of TABLE with MODEL. OUT has one row for each of TABLE's, in its order."""
    reporter = Reporter(quiet=quiet)
    wanted = outputs.Outputs(proba, logits, outputs.levels_of(quantiles), variance, mode, draws, seed, embeddings)
    asked = Asked(model, table, output, wanted, tuple(keep or ()), encoding, delimiter, decimal.value)
    place = model_place(model, pool)
    check_output(output)
    choice = PoolChoice(pool, workers, device.value, threads, timeout)
    with reporter.listening():
        if pool is None:  # what can be wrong with the table is found before any worker is started
            schema = stored_schema(place)
            batches = opened(asked, schema, reporter)
            with client_of(choice, place.store, reporter) as client:
                client.load(place.name, strict_bits=strict_bits)
                rows = answer(client, place.name, asked, schema, batches, reporter)
        else:
            with client_of(choice, None, reporter) as client:
                schema = schema_of_pool(pool_model(client, place.name))
                rows = answer(client, place.name, asked, schema, opened(asked, schema, reporter), reporter)
    reporter.line(f"predicted   {rows:,} rows of {table} to {'standard output' if output == '-' else output}")


@dataclass(frozen=True)
class Asked:
    """What the command line says about a prediction."""

    model: str
    table: str
    output: str
    wanted: outputs.Outputs = field(default_factory=outputs.Outputs)
    keep: tuple[str, ...] = ()
    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: str = "."


def check_output(output: str) -> None:
    """Raises UserError or Mistake for an OUT that can't be written, before any work is done."""
    from tabgrpc.data.sources import kind_of

    if output != "-":
        kind_of(output)
        if not Path(output).absolute().parent.is_dir():
            raise Mistake(f"{output}: no folder {Path(output).absolute().parent}")


def stored_schema(place: ModelPlace) -> Schema:
    """The schema of a model's folder. Raises Mistake if there is none."""
    from tabgrpc.data import Schema
    from tabgrpc.store.model import ModelDirectory

    assert place.store is not None
    folder = place.store / place.name
    if not folder.is_dir():
        raise Mistake(f"{folder}: no such model (a folder that `tabgrpc fit` writes)")
    return Schema.from_json(ModelDirectory(folder).manifest().schema)


def pool_model(client: Client, name: str) -> models_pb2.Model:
    """The pool's model, loaded from its store if it isn't served yet."""
    model = client.model(name)
    return model if model.loaded else client.load(name)


def schema_of_pool(model: models_pb2.Model) -> Schema:
    """What is known of the schema of a pool's model: enough to read a file's columns as the model will."""
    from tabgrpc.data import Column, Schema
    from tabgrpc.v1 import models_pb2

    regression = model.task == models_pb2.TASK_REGRESSION
    columns = tuple(Column(name, cast("Kind", kind)) for name, kind in zip(model.features, model.feature_kinds, strict=True))
    return Schema(columns, None, "regression" if regression else "classification", tuple(model.classes))


def opened(asked: Asked, schema: Schema, reporter: Reporter) -> Iterator[pa.RecordBatch]:
    """TABLE's batches; the first one is read here. Raises UserError and Mistake for whatever doesn't fit the model."""
    from tabgrpc.data import UserError, iter_batches
    from tabgrpc.data.errors import counted, listed, unknown_column

    asked.wanted.check(asked.model, schema.task)
    batches = iter_batches(
        asked.table,
        encoding=asked.encoding,
        delimiter=asked.delimiter,
        decimal=asked.decimal,
        schema=schema,
        rows=BATCH_ROWS,
    )
    first = next(batches)
    names = first.schema.names
    missing = [name for name in schema.feature_names if name not in names]
    if missing:
        raise UserError(
            f"{asked.table}: {counted(len(missing), 'column')} of the model missing in the table: {listed(missing)}"
        )
    for name in asked.keep:
        if name not in names:
            raise unknown_column(name, names, what="column to keep", where=asked.table)
    known = {*schema.feature_names, *schema.dropped, *asked.keep, schema.target}
    extra = [name for name in names if name not in known]
    if extra and schema.target is not None:  # a pool's model doesn't tell its target, which is no surprise in a table
        reporter.warn(f"{asked.table}: columns that the model doesn't know are ignored: {listed(extra)}")
    return chain([first], batches)


def answer(
    client: Client, name: str, asked: Asked, schema: Schema, batches: Iterator[pa.RecordBatch], reporter: Reporter
) -> int:
    """Streams the rows through the pool into OUT, and returns how many they were. Memory: the requests under way."""
    import pyarrow as pa

    from tabgrpc.data import TableWriter
    from tabgrpc.wire.errors import InvalidArgument

    reporter.release()
    kept: deque[pa.Table] = deque()
    misread: list[Exception] = []  # the stream may be fed from another thread, where an exception would be lost

    def requests() -> Iterator[pa.Table]:
        try:
            for batch in batches:
                for piece in pieces(pa.Table.from_batches([batch])):
                    kept.append(piece.select(asked.keep))
                    yield piece.select(schema.feature_names)
        except Exception as error:
            misread.append(error)
            raise

    rows = 0
    with reporter.bar(None) as bar, TableWriter(asked.output) as writer:
        try:
            for answered in client.stream_predict(name, requests(), wanted=asked.wanted.request()):
                writer.write(joined(kept.popleft(), answered, asked))
                rows += answered.num_rows
                bar.rows("predict", rows)
        except Exception as error:
            if misread:
                raise misread[0] from None
            if isinstance(error, InvalidArgument):
                raise Mistake(f"{asked.table}: {error}") from error
            raise
    return rows


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """The table in slices of about TABLE_BYTES, so that no message grows with the number of columns."""
    count = max(1, min(table.num_rows, -(-table.nbytes // TABLE_BYTES)))
    step = -(-table.num_rows // count)
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def joined(kept: pa.Table, answered: pa.Table, asked: Asked) -> pa.Table:
    """Kept columns, then the answer's. Raises Mistake where both have a name."""
    table = kept
    for name in filter(asked.wanted.answers, answered.schema.names):
        if name in asked.keep:
            raise Mistake(f"--keep: {name!r} is a column that tabgrpc writes itself")
        table = table.append_column(name, answered[name])
    return table
