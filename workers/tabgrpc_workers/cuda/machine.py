"""One CUDA device as a worker's machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from tabgrpc.core.policy import NumericPolicy
from tabgrpc_workers.cuda.backbone import DTYPES, CudaTabICL
from tabgrpc_workers.cuda.canary import canary
from tabgrpc_workers.cuda.recipe import CudaRecipe
from tabgrpc_workers.recipes import Recipe

LEAST_CAPABILITY = (8, 0)
KEPT_FREE = 0.06
"""Share of the device's memory that shards leave to kernels, graphs and fragmentation."""


class CudaMachine:
    """``device``: "cuda" or "cuda:N", counted among the visible ones. TF32 is off: float32 means float32."""

    kind = "cuda"
    dtypes: Mapping[str, torch.dtype] = DTYPES

    def __init__(self, device: str) -> None:
        found = torch.device(device)
        self.index = found.index or 0
        if self.index >= torch.cuda.device_count():
            raise RuntimeError(f"device {device!r} can't be had: {torch.cuda.device_count()} CUDA devices are visible")
        self.device = torch.device("cuda", self.index)
        self.name = torch.cuda.get_device_name(self.index)
        major, minor = torch.cuda.get_device_capability(self.index)
        if (major, minor) < LEAST_CAPABILITY:
            raise RuntimeError(f"device {device!r} can't be had: {self.name} has compute capability {major}.{minor}, kernels need 8.0")

    def enter(self) -> None:
        torch.set_num_threads(1)
        torch.cuda.set_device(self.device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def policy(self) -> NumericPolicy:
        major, minor = torch.cuda.get_device_capability(self.device)
        libraries = {name: version(name) for name in ("numpy", "tabicl", "torch")}
        libraries |= {"triton": triton.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": str(torch.version.cuda)}
        return NumericPolicy(
            dtype="float32",
            device="cuda",
            hardware=f"{self.name} sm_{major}{minor}",
            recipe=f"triton {_sources()}",
            libraries=tuple(sorted(libraries.items())),
            canary=canary(self.device),
        )

    def recipe(self, config: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype) -> Recipe:
        return CudaRecipe(CudaTabICL(config, state, dtype, self.device))

    def free_memory(self) -> int:
        free, total = torch.cuda.mem_get_info(self.device)
        return max(0, int(free - total * KEPT_FREE))

    def release(self) -> None:
        torch.cuda.empty_cache()


def _sources() -> str:
    """Digest of this package: another kernel may be other bits."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
