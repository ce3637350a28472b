"""What the classifier and the regressor have in common: a table sent to a pool and fitted there, rows asked of it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tabgrpc.client.features import Features, query_tables, training_table
from tabgrpc.client.fitted import FittedModel
from tabgrpc.client.parameters import device_of, fit_options
from tabgrpc.client.pieces import stream_bytes
from tabgrpc.client.saved import read_saved, write_saved
from tabgrpc.client.shared import store_of
from tabgrpc.data import DataWarning
from tabgrpc.data.frames import frame_of
from tabgrpc.data.target import labels_of
from tabgrpc.v1 import models_pb2 as pb


class PoolEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fits and predicts on a pool of workers; see ``TabGRPCClassifier`` and ``TabGRPCRegressor``."""

    _classification: bool
    _classes: np.ndarray[Any, Any] | None = None

    # --- fit ---

    def _fit(self, X: Any, y: Any) -> Self:
        """Everything is made first and set at the end: a fit that fails leaves the old model serving."""
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None: {type(self).__name__} is fitted on X and y")
        frame = frame_of(X)
        features = Features.of(X, frame, y)
        labels = labels_of(y, features.target)
        classes, target = self._targets(labels, features.target)
        if len(target) != frame.rows:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: {[frame.rows, len(target)]}")
        table, notes = training_table(frame, features, target)
        options = fit_options(self.get_params(deep=False), target=features.target, classification=self._classification)
        model = FittedModel(bytes(stream_bytes(table)), options)
        model.fit(self.pool, device_of(self.device), _printed if self.verbose else None)
        for note in dict.fromkeys([*notes, *model.served.warnings]):
            warnings.warn(note, DataWarning, stacklevel=3)
        self._take(model, features, classes, frame.rows)
        return self

    def _targets(self, labels: np.ndarray[Any, Any], name: str) -> tuple[np.ndarray[Any, Any] | None, pa.Array]:
        """The classes in order, and the target as it is sent."""
        raise NotImplementedError

    def _take(self, model: FittedModel, features: Features, classes: np.ndarray[Any, Any] | None, rows: int) -> None:
        old = getattr(self, "model_", None)
        self.model_, self._features, self.n_samples_in_, self.n_features_in_ = model, features, rows, len(features.names)
        self._classes = classes
        if features.text:
            self.feature_names_in_ = np.array(features.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if old is not None and old is not model:
            old.release()

    # --- predict ---

    def _ask(self, X: Any, wanted: pb.PredictRequest, width: int) -> list[pa.Table]:
        """Answers for all rows, in order, in pieces."""
        check_is_fitted(self)
        model, frame = self.model_, frame_of(X)  # a refit by another thread changes neither
        columns = self._features.match(X, frame, type(self).__name__)
        source = X if isinstance(X, pa.Table | pa.RecordBatch) or hasattr(X, "iloc") else frame
        return model.call(
            self.pool,
            device_of(self.device),
            lambda connection: list(model.answers(connection, query_tables(source, columns), width, wanted)),
        )

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """Row embeddings, (n, D) float64: each row as the network sees it, before it meets other rows; the mean over the members."""
        parts = self._ask(X, pb.PredictRequest(outputs=[pb.OUTPUT_EMBEDDINGS]), 512)
        return np.concatenate([matrix(part, part.column_names) for part in parts])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """(D,) names of ``transform``'s columns."""
        check_is_fitted(self)
        names = next(self._no_rows(pb.PredictRequest(outputs=[pb.OUTPUT_EMBEDDINGS]))).column_names
        return np.array([f"{type(self).__name__.lower()}_{name}" for name in names], dtype=object)

    def _no_rows(self, wanted: pb.PredictRequest) -> Iterator[pa.Table]:
        empty = pa.table({name: pa.nulls(0) for name in self._features.names})
        return self.model_.call(
            self.pool, device_of(self.device), lambda connection: iter(list(self.model_.answers(connection, iter([empty]), 512, wanted)))
        )

    # --- lifetime ---

    def save(
        self,
        path: str | os.PathLike[str],
        save_model_weights: bool = False,
        save_training_data: bool = True,
        save_kv_cache: bool = True,
    ) -> None:
        """Writes the fitted estimator to one file that ``load`` reads; nothing in it is pickled.

        save_kv_cache: with what the workers know of the table, so that loading computes nothing; for pools of this process only.
        save_training_data: with the table, from which loading fits again where there is no cache, or another pool.
        save_model_weights: with the checkpoint's file, so that loading needs no other. Raises ValueError if nothing would be left.
        """
        check_is_fitted(self)
        store = store_of(self.pool, device_of(self.device)) if save_kv_cache else None
        if not save_training_data and store is None:
            raise ValueError(
                "Cannot exclude training data when KV cache is not available or not being saved: the cache is saved with "
                "save_kv_cache=True, from a pool of this process"
            )
        if save_training_data and self.model_.data is None:
            raise ValueError("the training data weren't kept when this estimator was saved: use save_training_data=False")
        if store is not None:  # the pool may have lost it
            self.model_.call(self.pool, device_of(self.device), lambda connection: connection.client.model(self.model_.name))
        folder = None if store is None else Path(store) / self.model_.name
        write_saved(Path(path), self, self._features, self._classes, self.model_, folder, save_training_data, save_model_weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Any = None, pool: Any = None) -> Self:
        """The estimator that ``save`` wrote, on a pool (None: the shared local one). Raises ValueError for another format, class or
        checkpoint, each named."""
        saved = read_saved(Path(path), cls.__name__)
        estimator = cls(**saved.parameters)
        estimator.pool, estimator.device = pool, device if device is not None else estimator.device
        model = saved.serve(pool, device_of(estimator.device), store_of(pool, device_of(estimator.device)))
        estimator._take(model, saved.features, saved.classes, model.served.rows)
        return estimator

    def close(self) -> None:
        """Frees the model on the pool. The estimator stays fitted: should it be asked again, it fits again by itself."""
        model = getattr(self, "model_", None)
        if model is not None:
            model.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = False  # text in frames only: in an array of objects it is refused, as upstream does
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def matrix(table: pa.Table, names: list[str]) -> np.ndarray[Any, Any]:
    """(n, columns) float64 of an answer's columns."""
    out = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        out[:, place] = table[name].to_numpy()
    return out


def _printed(progress: pb.FitProgress) -> None:
    print(f"tabgrpc: {progress.stage} {progress.done}/{progress.total}, {progress.rows} rows", file=sys.stderr)
