"""The classifier: ``TabICLClassifier``'s interface over a pool."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from tabgrpc.client.estimator import PoolEstimator, matrix
from tabgrpc.data.target import classes_of
from tabgrpc.v1 import models_pb2 as pb


class TabGRPCClassifier(ClassifierMixin, PoolEstimator):  # type: ignore[misc]
    """TabICL as a scikit-learn classifier, computed by a pool of workers. Its answers don't depend on how many there are.

    Parameters are those of ``tabicl.TabICLClassifier`` 2.2.0 and mean the same; batch_size, use_amp, use_fa3, offload_mode,
    disk_offload_dir, n_jobs and inference_config are accepted and have no effect, with one warning. K/V caches are always kept, so
    kv_cache changes nothing. model_path: also "mini" or "tabicl-v2"; a file is one of the pool's host.

    pool : None, str or LocalPool
        None is a local pool that is started once, shared by all estimators of the process, and stopped at its end; or a pool's address
        ("host:port"); or a running ``LocalPool``.

    Attributes: ``classes_`` (K,), ``n_classes_``, ``n_features_in_``, ``feature_names_in_`` (if X had text names), ``n_samples_in_``,
    ``model_`` (its name on the pool).
    """

    _classification = True

    def __init__(
        self,
        n_estimators: int = 8,
        norm_methods: str | list[str] | None = None,
        feat_shuffle_method: str = "latin",
        class_shuffle_method: str = "shift",
        outlier_threshold: float = 4.0,
        softmax_temperature: float = 0.9,
        average_logits: bool = True,
        support_many_classes: bool = True,
        batch_size: int | None = 8,
        kv_cache: bool | str = False,
        model_path: Any = None,
        allow_auto_download: bool = True,
        checkpoint_version: str = "tabicl-classifier-v2-20260212.ckpt",
        device: Any = None,
        use_amp: bool | str = "auto",
        use_fa3: bool | str = "auto",
        offload_mode: str | bool = "auto",
        disk_offload_dir: str | None = None,
        random_state: int | None = 42,
        n_jobs: int | None = None,
        verbose: bool = False,
        inference_config: Any = None,
        pool: Any = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.norm_methods = norm_methods
        self.feat_shuffle_method = feat_shuffle_method
        self.class_shuffle_method = class_shuffle_method
        self.outlier_threshold = outlier_threshold
        self.softmax_temperature = softmax_temperature
        self.average_logits = average_logits
        self.support_many_classes = support_many_classes
        self.batch_size = batch_size
        self.kv_cache = kv_cache
        self.model_path = model_path
        self.allow_auto_download = allow_auto_download
        self.checkpoint_version = checkpoint_version
        self.device = device
        self.use_amp = use_amp
        self.use_fa3 = use_fa3
        self.offload_mode = offload_mode
        self.disk_offload_dir = disk_offload_dir
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.inference_config = inference_config
        self.pool = pool

    def fit(self, X: Any, y: Any) -> Self:
        """X: (n, features), a frame, Arrow table or array. y: (n,) labels: numbers, text, booleans, nullable or not.

        Raises ValueError naming column and row for what can't be used; then an earlier fit of this estimator stays as it was.
        """
        return self._fit(X, y)

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """(K,) the labels, in the type that they had, in the order of the probabilities."""
        if self._classes is None:
            raise AttributeError(f"{type(self).__name__} is not fitted: it has no classes_")
        return self._classes

    @property
    def n_classes_(self) -> int:
        """K."""
        return len(self.classes_)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """(n,) labels."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """(n, K) float64; each row sums to 1."""
        return self._columns(X, pb.PredictRequest(), "proba_")

    def predict_log_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """(n, K) float64, natural logarithms."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict_logits(self, X: Any) -> np.ndarray[Any, Any]:
        """(n, K) float64: the members' mean logits, before temperature and softmax."""
        return self._columns(X, pb.PredictRequest(outputs=[pb.OUTPUT_LOGITS]), "logit_")

    def _columns(self, X: Any, wanted: pb.PredictRequest, prefix: str) -> np.ndarray[Any, Any]:
        count = 0 if self._classes is None else len(self._classes)
        parts = self._ask(X, wanted, 1 + 2 * count)
        first = parts[0].column_names.index(next(name for name in parts[0].column_names if name.startswith(prefix)))
        return np.concatenate([matrix(part, part.column_names[first : first + count]) for part in parts])

    def _targets(self, labels: np.ndarray[Any, Any], name: str) -> tuple[np.ndarray[Any, Any], pa.Array]:
        check_classification_targets(labels)
        classes = np.array(classes_of(labels), dtype=None if labels.dtype.kind == "U" else labels.dtype)
        if not self.support_many_classes and len(classes) > 10:
            raise ValueError(f"{len(classes)} classes are more than the 10 that the network tells apart, and support_many_classes is False")
        return classes, pa.array(labels.astype(str).astype(object) if labels.dtype.kind in "UO" else labels)
