"""This worker's numeric policy: what it computes with, and a canary computed with it."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version

import torch
import torch.nn.functional as F

from tabgrpc.core.policy import NumericPolicy
from tabgrpc_workers.kernels import partials


def cpu_policy(dtype: str = "float32") -> NumericPolicy:
    """The policy of this process on the CPU. Its thread count is part of it: one intra-op thread, set before."""
    if torch.get_num_threads() != 1:
        raise RuntimeError("a worker computes with one intra-op thread")
    return NumericPolicy(
        dtype=dtype,
        device="cpu",
        hardware=f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        recipe="eager",
        libraries=tuple((name, version(name)) for name in ("numpy", "tabicl", "torch")),
        canary=canary(),
    )


def canary() -> str:
    """Digest of fixed tiles through every kind of kernel in use: linear, layer norm, GELU, attention."""
    digest = hashlib.sha256()
    with torch.inference_mode():
        for dtype in (torch.float32, torch.float64):
            ramp = torch.arange(64 * 128, dtype=dtype).reshape(64, 128)
            x = torch.frac(ramp * 0.6180339887498949) - 0.5
            w = torch.frac(torch.arange(256 * 128, dtype=dtype).reshape(256, 128) * 0.7548776662466927) - 0.5
            hidden = F.gelu(F.linear(F.layer_norm(x, (128,)), w))
            q, k = (t.reshape(64, 8, 16).transpose(0, 1)[None] for t in (hidden[:, :128], hidden[:, 128:]))
            part = partials(q, k, k)
            for tensor in (hidden, part.acc, part.sum, part.peak):
                digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
