"""Requests' rows to numbers by the model's schema, and numbers back to the answer's columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tabgrpc.scheduler.models import Model
from tabgrpc.scheduler.tables import read_stream
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument


def query_rows(model: Model, request: pb.PredictRequest) -> np.ndarray:
    """(n, F) float64 as the schema encodes them. Raises UserError, InvalidArgument."""
    first_row = request.first_row + 1  # messages count rows from 1
    match request.WhichOneof("rows"):
        case "arrow":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the client told its user
                return model.schema.encode(read_stream(request.arrow, "the request's rows"), first_row)
        case "floats":
            rows, names = request.floats.rows, model.schema.feature_names
            values = np.array(request.floats.values, np.float64)
            if len(values) != rows * len(names):
                raise InvalidArgument(f"{rows} rows of {len(names)} features are {rows * len(names)} values, not {len(values)}")
            values = values.reshape(rows, len(names))
            table = pa.table({name: pa.array(values[:, i], from_pandas=True) for i, name in enumerate(names)})
            return model.schema.encode(table, first_row)
    raise InvalidArgument("a predict needs rows")


def answer(model: Model, outputs: np.ndarray, levels: Sequence[float]) -> pa.Table:
    """Probabilities (n, K), or mean and quantiles (n, 1 + levels), as the columns that callers get."""
    if model.manifest.task == "classification":
        columns = {"prediction": pa.array(model.schema.decode(outputs.argmax(axis=1)) if len(outputs) else [])}
        names = [f"proba_{label}" for label in model.schema.classes]
        return pa.table(columns | {name: outputs[:, i] for i, name in enumerate(names)})
    names = ["prediction", *(f"q{level:g}" for level in levels)]
    return pa.table({name: outputs[:, i] for i, name in enumerate(names)})
