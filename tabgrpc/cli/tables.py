"""Tables for people, on stdout: as wide as they need to be where stdout is no terminal, so that nothing is cut off."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def show(table: Table) -> None:
    """Prints the table without lines around it."""
    from rich.console import Console

    table.box, table.pad_edge, table.show_edge = None, False, False
    Console(width=None if sys.stdout.isatty() else 400, highlight=False).print(table)
