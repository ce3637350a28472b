"""Requests' rows to numbers by the model's schema, and numbers back to the answer's columns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tabgrpc.backbones.quantiles import MAX_DRAWS, draws, mode
from tabgrpc.core.head import Head
from tabgrpc.scheduler.models import Model
from tabgrpc.scheduler.tables import read_stream
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument

_OF_REGRESSION = {pb.OUTPUT_VARIANCE, pb.OUTPUT_MODE, pb.OUTPUT_RAW_QUANTILES}
_KNOWN = _OF_REGRESSION | {pb.OUTPUT_LOGITS, pb.OUTPUT_EMBEDDINGS}


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


@dataclass(frozen=True)
class Asked:
    """What a request wants of a model, checked: as columns of a head's outputs, and back as columns of the answer."""

    model: Model
    head: Head
    outputs: frozenset[int]
    draws: int
    seed: int
    first_row: int

    @classmethod
    def of(cls, model: Model, request: pb.PredictRequest) -> Asked:
        """Raises InvalidArgument for what the model can't answer."""
        levels, outputs, draws = tuple(request.quantiles), frozenset(request.outputs), request.draws.count
        if any(not 0.0 < level < 1.0 for level in levels):
            raise InvalidArgument(f"quantile levels lie between 0 and 1, not {list(levels)}")
        if unknown := outputs - _KNOWN:
            raise InvalidArgument(f"no output {min(unknown)}")
        if draws > MAX_DRAWS:
            raise InvalidArgument(f"{draws} draws of a row are more than the limit of {MAX_DRAWS}")
        regression = model.manifest.task == "regression"
        if not regression and (levels or draws or outputs & _OF_REGRESSION):
            raise InvalidArgument(f"{model.version_name} predicts classes, which have no quantiles, variance, mode or draws")
        if regression and pb.OUTPUT_LOGITS in outputs:
            raise InvalidArgument(f"{model.version_name} predicts numbers, which have no logits")
        if pb.OUTPUT_EMBEDDINGS in outputs and (levels or draws or len(outputs) > 1):
            raise InvalidArgument("embeddings are asked for alone")
        head = Head(
            levels=levels,
            variance=pb.OUTPUT_VARIANCE in outputs,
            quantiles=bool(draws or outputs & {pb.OUTPUT_MODE, pb.OUTPUT_RAW_QUANTILES}),
            embeddings=pb.OUTPUT_EMBEDDINGS in outputs,
        )
        return cls(model, head, outputs, draws, request.draws.seed, request.first_row)

    def answer(self, values: np.ndarray) -> pa.Table:
        """What the predictor gave for this head, (n, columns) float64, as the columns that callers get."""
        if self.head.embeddings:
            return pa.table({f"embedding_{i}": values[:, i] for i in range(values.shape[1])})
        if self.model.manifest.task == "classification":
            return self._classes(values)
        names = ["prediction", *map(quantile_name, self.head.levels), *(["variance"] if self.head.variance else [])]
        columns = {name: values[:, i] for i, name in enumerate(names)}
        if self.head.quantiles:
            quantiles, scales = values[:, self.head.fixed : -2], values[:, -2:]
            if pb.OUTPUT_MODE in self.outputs:
                columns["mode"] = mode(quantiles)
            if pb.OUTPUT_RAW_QUANTILES in self.outputs:
                columns |= {f"raw_{i}": quantiles[:, i] for i in range(quantiles.shape[1])}
            drawn = draws(quantiles, scales, self.draws, self.seed, self.first_row) if self.draws else quantiles[:, :0]
            columns |= {f"draw_{i}": drawn[:, i] for i in range(self.draws)}
        return pa.table(columns)

    def _classes(self, values: np.ndarray) -> pa.Table:
        classes = self.model.schema.classes
        probabilities, logits = values[:, : len(classes)], values[:, len(classes) :]
        columns: dict[str, Any] = {"prediction": pa.array(self.model.schema.decode(probabilities.argmax(axis=1)))}
        columns |= {f"proba_{label}": probabilities[:, i] for i, label in enumerate(classes)}
        if pb.OUTPUT_LOGITS in self.outputs:
            columns |= {f"logit_{label}": logits[:, i] for i, label in enumerate(classes)}
        return pa.table(columns)


def quantile_name(level: float) -> str:
    """"q0.1"; with as many digits as it takes to tell two levels apart."""
    return f"q{level:g}" if float(f"{level:g}") == level else f"q{level!r}"
