"""tabicl's own forward pass over prepared features: what this project is measured against. Not used by a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tabgrpc.backbones.network import TabICL


class Upstream:
    """A checkpoint in one process, as tabicl runs it."""

    def __init__(self, config: Mapping[str, Any], state: Mapping[str, Tensor], device: str) -> None:
        self._net = TabICL(**config).eval()
        self._net.load_state_dict(dict(state))
        self._net = self._net.to(device)
        self._device = device

    def stages(self, x: Tensor, y: Tensor, queries: Tensor, half: bool) -> tuple[Callable[[], None], Callable[[], Tensor]]:
        """Fit and predict of x (R, F) and y (R,), queries (Q, F), on the device. half: by autocast, else float32.

        Predict gives (Q, O) float32 on the CPU, from the cache that fit left.
        """
        from tabicl._model.inference_config import InferenceConfig

        settings = InferenceConfig()
        for part in (settings.COL_CONFIG, settings.ROW_CONFIG, settings.ICL_CONFIG):
            part.update({"device": self._device, "use_amp": half})

        def fit() -> None:
            with torch.no_grad():
                self._net.forward_with_cache(X_train=x[None], y_train=y[None], store_cache=True, inference_config=settings)

        def predict() -> Tensor:
            with torch.no_grad():
                out = self._net.forward_with_cache(X_test=queries[None], use_cache=True, store_cache=False, inference_config=settings)
            return out[0].float().cpu()

        return fit, predict
