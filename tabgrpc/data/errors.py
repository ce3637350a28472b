"""A user's mistake, told in one line. The command line exits 2 with it; the service answers INVALID_ARGUMENT.

Rows in messages are data rows counted from 1: row 1 of a CSV file is the line after its header."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UserError(ValueError):
    """What the user gave can't be used; the message is one line that names the file, column or row."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


class UserTypeError(UserError, TypeError):
    """A `UserError` about the kind of object given (sparse matrices, complex numbers): also a TypeError, as in
    scikit-learn."""


class DataWarning(UserWarning):
    """A column was converted, ignored or looks useless; the message names it."""


def listed(names: Iterable[object], limit: int = 10) -> str:
    """Names in quotes, at most `limit` of them: `'a', 'b' and 3 more`."""
    shown = [repr(str(name)) for name in names]
    more = len(shown) - limit
    return ", ".join(shown[:limit]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def unknown_column(name: str, names: Sequence[str], what: str = "column", where: str = "") -> UserError:
    """The error for a name that isn't among `names`: lists them, nearest first."""
    folded = {known.casefold(): known for known in reversed(names)}
    near = difflib.get_close_matches(name.strip().casefold(), list(folded), n=1, cutoff=0.6)
    hint = f" (did you mean {folded[near[0]]!r}?)" if near else ""
    return UserError(f"{where + ': ' if where else ''}{what} {name!r} not found{hint}; columns are {listed(names, 20)}")
