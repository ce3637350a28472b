"""TabICL's constructor parameters as options of a fit: what each means here, and one warning for those that mean nothing."""

from __future__ import annotations

import numbers
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tabgrpc.data.errors import listed
from tabgrpc.v1 import models_pb2 as pb

#: Parameters of upstream's that nothing here depends on, and their defaults: memory, threads and precision are the pool's own business.
UNUSED: dict[str, Any] = {
    "batch_size": 8,
    "use_amp": "auto",
    "use_fa3": "auto",
    "offload_mode": "auto",
    "disk_offload_dir": None,
    "n_jobs": None,
    "inference_config": None,
}
DEFAULT_VERSIONS = ("tabicl-classifier-v2-20260212.ckpt", "tabicl-regressor-v2-20260212.ckpt")
_KV_CACHE = (False, True, "kv", "repr")


def fit_options(parameters: dict[str, Any], *, target: str, classification: bool) -> pb.FitOptions:
    """parameters: an estimator's. Raises ValueError, TypeError naming the parameter; warns once of all that have no effect."""
    get = parameters.get
    options = pb.FitOptions(
        target=target,
        task=pb.TASK_CLASSIFICATION if classification else pb.TASK_REGRESSION,
        checkpoint=_checkpoint(get("model_path"), get("checkpoint_version")),
        n_estimators=_count(get("n_estimators")),
        random_state=seed_of(get("random_state")),
        norm_methods=_methods(get("norm_methods")),
        feat_shuffle_method=str(get("feat_shuffle_method")),
        outlier_threshold=_positive("outlier_threshold", get("outlier_threshold")),
        no_download=not get("allow_auto_download"),
    )
    if classification:
        options.class_shuffle_method = str(get("class_shuffle_method"))
        options.softmax_temperature = _positive("softmax_temperature", get("softmax_temperature"))
        options.average_probabilities = not get("average_logits")
    if get("kv_cache") not in _KV_CACHE:
        raise ValueError(f"Invalid kv_cache value {get('kv_cache')!r}. Expected False, True, 'kv', or 'repr'.")
    device_of(get("device"))
    _warn(parameters)
    return options


def _warn(parameters: dict[str, Any]) -> None:
    changed = [name for name, default in UNUSED.items() if name in parameters and not _same(parameters[name], default)]
    if parameters.get("device") is not None and parameters.get("pool") is not None:
        changed.append("device")
    if changed:
        warnings.warn(f"no effect here, the pool decides: {listed(changed)}", UserWarning, stacklevel=5)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def device_of(device: Any) -> str:
    """A device parameter as a local pool's: "auto", "cpu" or "cuda". Raises ValueError for others."""
    kind = "auto" if device is None else str(device).partition(":")[0]
    if kind not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device {device!r} is not supported: use None, 'cpu' or 'cuda'")
    return kind


def _checkpoint(model_path: Any, version: Any) -> str:
    if model_path is not None:
        text = str(model_path)
        return text if text in ("auto", "mini", "tabicl-v2") else str(Path(text).expanduser().absolute())
    if version not in (*DEFAULT_VERSIONS, None):
        raise ValueError(f"checkpoint_version {version!r} is not supported: TabICL v2's are, {' and '.join(DEFAULT_VERSIONS)}")
    return "auto"


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"n_estimators must be a whole number, not {value!r}")
    count = int(value)
    if not 1 <= count <= 1024:
        raise ValueError(f"n_estimators must be at least 1 and at most 1024, not {count}")
    return count


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive number, not {value!r}")
    return float(value)


def _methods(value: Any) -> list[str]:
    if value is None or len(value) == 0:
        return []
    return [value] if isinstance(value, str) else [str(each) for each in value]


def seed_of(random_state: Any) -> int:
    """A seed of an int, a NumPy generator (which moves on) or None (a new one each time)."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, numbers.Integral) and abs(int(random_state)) < 2**63:
        return int(random_state)
    raise ValueError(f"random_state must be a whole number of 64 bits, a NumPy generator or None, not {random_state!r}")
