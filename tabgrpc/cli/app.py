"""`tabgrpc`: the commands put together, and the one place where exceptions become exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tabgrpc import __version__
from tabgrpc.cli import bench, demo, doctor, fit, models, predict, serve, status, worker
from tabgrpc.cli.errors import OK, debugging, report

app = typer.Typer(
    name="tabgrpc",
    help="In-context tabular models over a pool of workers: the same bits, however many workers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tabgrpc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command(name="fit")(fit.fit)
app.command(name="predict")(predict.predict)
app.command(name="serve")(serve.serve)
app.command(name="worker")(worker.worker)
app.command(name="status")(status.status)
app.add_typer(models.app, name="models")
app.add_typer(bench.app, name="bench")
app.command(name="doctor")(doctor.doctor)
app.command(name="demo")(demo.demo)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    # What a library or a local pool logs stays out of a user's sight unless asked for; `serve` sets up its own log.
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.DEBUG if debugging() else logging.CRITICAL + 1)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debugging() else logging.WARNING)
    if not debugging():  # gRPC's core writes lines of its own to stderr, such as for a port in use
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    command = typer.main.get_command(app)
    try:
        code = command.main(args=None if argv is None else list(argv), prog_name="tabgrpc", standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    except BaseException as error:  # the last place: whatever it is becomes one line and a code
        return report(error)
    return code if isinstance(code, int) else OK
