"""Options that several commands share: each has a flag, a TABGRPC_* variable and a help line, here and nowhere else."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from tabgrpc.cli.errors import Mistake

DEFAULT_ADDRESS = "127.0.0.1:50051"


class Device(StrEnum):
    """Where workers run."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Task(StrEnum):
    """What to predict."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


class DType(StrEnum):
    """What a model computes in."""

    float32 = "float32"
    float64 = "float64"


class Exchange(StrEnum):
    """How workers that own rows of the same member exchange."""

    auto = "auto"
    grpc = "grpc"
    collective = "collective"


class Save(StrEnum):
    """What a model keeps on disk."""

    auto = "auto"
    kv = "kv"
    repr = "repr"
    data = "data"


class Decimal(StrEnum):
    """The decimal mark of a CSV file."""

    point = "."
    comma = ","


Table = Annotated[
    str, typer.Argument(metavar="TABLE", help="A .csv, .tsv, .parquet or .arrow file, or - for standard input.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        envvar="TABGRPC_WORKERS",
        show_default=False,
        help="Local workers. Default: one a GPU, or two on a CPU.",
    ),
]
DeviceOption = Annotated[Device, typer.Option("--device", envvar="TABGRPC_DEVICE", help="Where local workers run.")]
Threads = Annotated[
    int,
    typer.Option(
        min=1, max=256, envvar="TABGRPC_THREADS", help="Threads of a worker on a CPU; they never change a result."
    ),
]
ExchangeOption = Annotated[
    Exchange,
    typer.Option(
        "--exchange",
        envvar="TABGRPC_EXCHANGE",
        help="How workers exchange partial results: by collectives where they can, or over gRPC. Never changes an answer.",
    ),
]
Pool = Annotated[
    str | None,
    typer.Option(
        envvar="TABGRPC_POOL", metavar="HOST:PORT", show_default=False, help="A running pool, instead of a local one."
    ),
]
Address = Annotated[str, typer.Option("--pool", envvar="TABGRPC_POOL", metavar="HOST:PORT", help="The pool.")]
Timeout = Annotated[
    float,
    typer.Option(min=0.1, envvar="TABGRPC_TIMEOUT", metavar="SECONDS", help="How long one call to the pool may take."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", envvar="TABGRPC_QUIET", help="Errors only on stderr.")]
Json = Annotated[bool, typer.Option("--json", envvar="TABGRPC_JSON", help="One JSON object on stdout.")]
Encoding = Annotated[str, typer.Option(envvar="TABGRPC_ENCODING", help="Encoding of a CSV file.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        envvar="TABGRPC_DELIMITER", show_default=False, help="Delimiter of a CSV file. Default: found from the file."
    ),
]
DecimalOption = Annotated[
    Decimal, typer.Option("--decimal", envvar="TABGRPC_DECIMAL", help="Decimal mark of a CSV file.")
]
Checkpoint = Annotated[
    str,
    typer.Option(envvar="TABGRPC_CHECKPOINT", metavar="NAME|PATH", help="auto, mini, tabicl-v2 or a checkpoint file."),
]

_UNITS = {"": 1, "B": 1} | {f"{letter}B": 1000**at for at, letter in enumerate("KMGT", 1)}
_UNITS |= {f"{letter}IB": 1024**at for at, letter in enumerate("KMGT", 1)}


def bytes_of(text: str, option: str) -> int:
    """ "8GiB", "500 MB" or "1024" in bytes. Raises Mistake naming the option."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise Mistake(f"{option}: {text!r} is not a number of bytes, such as 8GiB or 500MB")
    return int(float(found[1]) * _UNITS[found[2].upper()])
