"""Which attention kernel trains fastest on this device: measured, as it depends on head size and sequence length."""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F

# (tables x rows or columns, heads, queries, keys, head dimension) of the row, column and dataset stages.
SHAPES = {"rows": (32768, 4, 24, 24, 16), "columns": (640, 4, 1024, 32, 16), "dataset": (32, 8, 1024, 768, 32)}


def choose_attention() -> None:
    """Time flash and memory-efficient attention, forward and backward, and leave the faster one switched on.

    cuDNN's is off: it plans anew for each shape, which took longer than the step itself.
    """
    if not torch.cuda.is_available():
        return
    backends = torch.backends.cuda
    backends.enable_cudnn_sdp(False)
    switches = {"flash": backends.enable_flash_sdp, "efficient": backends.enable_mem_efficient_sdp}
    times = {}
    for name in switches:
        for other, switch in switches.items():
            switch(other == name)
        times[name] = {stage: round(measure(*shape), 2) for stage, shape in SHAPES.items()}
        torch.cuda.empty_cache()
    best = min(times, key=lambda name: 3 * times[name]["rows"] + 2 * times[name]["columns"] + times[name]["dataset"])
    for name, switch in switches.items():
        switch(name == best)
    print(f"attention, ms forward and backward: {times}; {best} it is", flush=True)


def measure(B: int, heads: int, queries: int, keys: int, dim: int, repeats: int = 5) -> float:
    """Milliseconds of one forward and backward pass in bfloat16, the mean of `repeats` after one to warm up."""
    q = torch.randn(B, heads, queries, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(B, heads, keys, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "kv")
    for repeat in range(repeats + 1):
        if repeat == 1:
            torch.cuda.synchronize()
            start = time.monotonic()
        F.scaled_dot_product_attention(q, k, v).sum().backward()
    torch.cuda.synchronize()
    return (time.monotonic() - start) / repeats * 1e3
