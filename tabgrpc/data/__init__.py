"""Tables: reading and writing files, the schema that turns any of them into numbers, and the ensemble's members.
A user's mistake is a `UserError`, one line that names the file, column or row."""

from tabgrpc.data.encoding import Column
from tabgrpc.data.errors import DataWarning, UserError, UserTypeError
from tabgrpc.data.reading import iter_batches, read_table
from tabgrpc.data.schema import Schema, check_trainable
from tabgrpc.data.writing import TableWriter, write_table

__all__ = [
    "Column",
    "DataWarning",
    "Schema",
    "TableWriter",
    "UserError",
    "UserTypeError",
    "check_trainable",
    "iter_batches",
    "read_table",
    "write_table",
]
