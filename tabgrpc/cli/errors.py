"""How a command ends: 0, 2 for the user's mistake, 3 for the pool's; an error is one line on stderr, no traceback."""

from __future__ import annotations

import os
import sys
import traceback

import typer

OK, USER, POOL, INTERRUPTED, TERMINATED = 0, 2, 3, 130, 143


class Mistake(Exception):
    """What the user asked for can't be done; the message is one line that names it. Exit code 2."""


class PoolFailure(Exception):
    """The pool could not do it. Exit code 3."""


def debugging() -> bool:
    """Whether TABGRPC_DEBUG asks for tracebacks and logs."""
    return os.environ.get("TABGRPC_DEBUG", "") not in ("", "0")


def report(error: BaseException) -> int:
    """Writes the one line of an error to stderr and returns the exit code."""
    if debugging():
        traceback.print_exception(error)
    code, text = judged(error)
    if text:  # not through rich, which would break a long line in two
        print(f"error: {' '.join(text.split())}", file=sys.stderr, flush=True)
    return code


def judged(error: BaseException) -> tuple[int, str]:
    """Exit code and text of an exception."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, typer.Abort):
        return INTERRUPTED, "aborted"
    if isinstance(error, Mistake):
        return USER, str(error)
    if isinstance(error, PoolFailure):
        return POOL, str(error)
    if isinstance(error, USAGE):
        return USER, _usage(error)
    return _from_below(error)


def _usage_error() -> type[Exception]:
    """click's exception for a bad command line, wherever typer has it from: newer versions carry click inside."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


USAGE = _usage_error()


def _usage(error: Exception) -> str:
    """`Missing option '--target' (see tabgrpc fit --help)`; empty where the help itself was shown."""
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if not message:
        return ""
    return f"{message.rstrip('.')} (see {context.command_path if context else 'tabgrpc'} --help)"


def _from_below(error: BaseException) -> tuple[int, str]:
    """Of an exception that the other packages raise; imported here, as they are heavy and most commands end well."""
    from tabgrpc.checkpoints.checkpoint import CheckpointError
    from tabgrpc.data.errors import UserError
    from tabgrpc.store.files import DamagedModel
    from tabgrpc.store.model import UnknownFormat
    from tabgrpc.wire.channels import AddressInUse
    from tabgrpc.wire.errors import AlreadyExists, InternalError, InvalidArgument, NotFound, NotReady, ServiceError

    if isinstance(error, (UserError, CheckpointError, DamagedModel, UnknownFormat, AddressInUse)):
        return USER, str(error)
    if isinstance(error, (InvalidArgument, NotFound, NotReady, AlreadyExists)):
        return USER, str(error)
    if isinstance(error, InternalError):
        return POOL, f"{error} (TABGRPC_DEBUG=1 shows the log of a local pool)"
    if isinstance(error, ServiceError):
        return POOL, str(error)
    return POOL, f"{type(error).__name__}: {error} (TABGRPC_DEBUG=1 shows where)"
