"""The regressor: ``TabICLRegressor``'s interface over a pool."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import RegressorMixin

from tabgrpc.backbones.quantiles import MAX_DRAWS
from tabgrpc.client.estimator import PoolEstimator, matrix
from tabgrpc.data.target import check_numbers_in_text
from tabgrpc.v1 import models_pb2 as pb

OUTPUT_TYPES = ("mean", "median", "mode", "quantiles", "variance", "raw_quantiles", "draws")
ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_RAW_WIDTH = 1024  # as many quantiles as networks have, about


class TabGRPCRegressor(RegressorMixin, PoolEstimator):  # type: ignore[misc]
    """TabICL as a scikit-learn regressor, computed by a pool of workers. Its answers don't depend on how many there are.

    Parameters are those of ``tabicl.TabICLRegressor`` 2.2.0 and mean the same; batch_size, use_amp, use_fa3, offload_mode,
    disk_offload_dir, n_jobs and inference_config are accepted and have no effect, with one warning. K/V caches are always kept, so
    kv_cache changes nothing. model_path: also "mini" or "tabicl-v2"; a file is one of the pool's host.

    pool : None, str or LocalPool
        None is a local pool that is started once, shared by all estimators of the process, and stopped at its end; or a pool's address
        ("host:port"); or a running ``LocalPool``.

    Attributes: ``n_features_in_``, ``feature_names_in_`` (if X had text names), ``n_samples_in_``, ``model_`` (its name on the pool).
    """

    _classification = False

    def __init__(
        self,
        n_estimators: int = 8,
        norm_methods: str | list[str] | None = None,
        feat_shuffle_method: str = "latin",
        outlier_threshold: float = 4.0,
        batch_size: int | None = 8,
        kv_cache: bool | str = False,
        model_path: Any = None,
        allow_auto_download: bool = True,
        checkpoint_version: str = "tabicl-regressor-v2-20260212.ckpt",
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
        self.outlier_threshold = outlier_threshold
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
        """X: (n, features), a frame, Arrow table or array. y: (n,) numbers.

        Raises ValueError naming column and row for what can't be used; then an earlier fit of this estimator stays as it was.
        """
        return self._fit(X, y)

    def predict(
        self,
        X: Any,
        output_type: str | Sequence[str] = "mean",
        alphas: Sequence[float] | None = None,
        *,
        n_draws: int = 100,
        seed: int = 0,
    ) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
        """What is asked of each row's distribution, float64, in the target's unit; for a list of types a dict by type.

        "mean", "median", "mode": (n,). "variance": (n,), in the unit squared. "quantiles": (n, alphas), at any levels in (0, 1), in their
        order; None is 0.1, 0.2, ... 0.9. "raw_quantiles": (n, Q), the network's own. "draws": (n, n_draws) numbers drawn from it, by the
        seed and the row's place alone.
        """
        types = [output_type] if isinstance(output_type, str) else list(output_type)
        if unknown := [each for each in types if each not in OUTPUT_TYPES]:
            raise ValueError(f"output_type {unknown[0]!r} is unknown: use one of {', '.join(OUTPUT_TYPES)}")
        levels = [float(level) for level in (ALPHAS if alphas is None else np.atleast_1d(np.asarray(alphas, np.float64)))]
        if "quantiles" in types and (outside := [level for level in levels if not 0.0 < level < 1.0]):
            raise ValueError(f"alphas lie between 0 and 1, not {outside[0]}")
        wanted = self._wanted(types, levels, n_draws, seed)
        width = 2 + len(wanted.quantiles) + _RAW_WIDTH * ("raw_quantiles" in types) + wanted.draws.count
        parts = self._ask(X, wanted, width)
        found = {each: np.concatenate([_read(part, each, levels, wanted) for part in parts]) for each in types}
        return found[types[0]] if len(types) == 1 else found

    @staticmethod
    def _wanted(types: list[str], levels: list[float], n_draws: int, seed: int) -> pb.PredictRequest:
        asked = [0.5] * ("median" in types) + levels * ("quantiles" in types)
        outputs = {"variance": pb.OUTPUT_VARIANCE, "mode": pb.OUTPUT_MODE, "raw_quantiles": pb.OUTPUT_RAW_QUANTILES}
        draws = None
        if "draws" in types:
            if not isinstance(n_draws, Integral) or not 1 <= n_draws <= MAX_DRAWS:
                raise ValueError(f"n_draws must be a whole number from 1 to {MAX_DRAWS}, not {n_draws!r}")
            if not isinstance(seed, Integral) or not 0 <= seed < 2**64:
                raise ValueError(f"seed must be a whole number from 0 to 2^64 - 1, not {seed!r}")
            draws = pb.Draws(count=int(n_draws), seed=int(seed))
        return pb.PredictRequest(
            quantiles=list(dict.fromkeys(asked)), outputs=[outputs[each] for each in types if each in outputs], draws=draws
        )

    def _targets(self, labels: np.ndarray[Any, Any], name: str) -> tuple[None, pa.Array]:
        check_numbers_in_text(labels, name, "regression")
        return None, pa.array(labels.astype(np.float64))


def _read(part: pa.Table, output_type: str, levels: list[float], wanted: pb.PredictRequest) -> np.ndarray[Any, Any]:
    """One output of a piece of an answer: quantiles stand after the prediction, in the order in which they were asked for."""
    names = part.column_names
    of_level = {level: names[1 + place] for place, level in enumerate(wanted.quantiles)}
    match output_type:
        case "quantiles":
            return matrix(part, [of_level[level] for level in levels])
        case "raw_quantiles" | "draws":
            prefix = "raw_" if output_type == "raw_quantiles" else "draw_"
            return matrix(part, [name for name in names if name.startswith(prefix)])
    name = {"mean": "prediction", "median": of_level.get(0.5, "")}.get(output_type, output_type)
    return matrix(part, [name])[:, 0]
