"""Tensors on the wire."""

from __future__ import annotations

import pytest
import torch
from tabgrpc_workers.arrays import placed, plain

from tabgrpc.wire.codec import arrays, frames


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_dtype_of_a_policy_travels(dtype: torch.dtype) -> None:
    """numpy has no bfloat16: K/V of that policy would be refused by the codec, or come back as integers."""
    sent = {"k/0": torch.randn(3, 5).to(dtype), "v/0": torch.tensor([float("-inf"), -0.0, 1.5]).to(dtype)}
    received = {name: torch.from_numpy(array.copy()) for name, array in arrays(frames(plain(sent))).items()}
    back = placed(received, torch.device("cpu"))
    for name, tensor in sent.items():
        assert back[name].dtype == dtype
        assert back[name].view(torch.uint8).equal(tensor.view(torch.uint8))
