"""What the GPU tests share. They are skipped where there is no CUDA device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tabgrpc_workers.device import Device

from tabgrpc.backbones.network import TabICL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if "/gpu/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def weights() -> tuple[dict[str, object], dict[str, torch.Tensor]]:
    """TabICL v2's default network, every parameter random: zero-initialised residuals would hide a fault."""
    torch.manual_seed(0)
    config: dict[str, object] = {"row_rope_interleaved": False}
    generator = torch.Generator().manual_seed(1)
    state = TabICL(**config, zero_init=False).state_dict()
    noisy = {
        name: value + 0.02 * torch.randn(value.shape, generator=generator) if value.is_floating_point() and value.ndim else value
        for name, value in state.items()
    }
    return config, noisy


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    from tabgrpc_workers.machines import machine

    device = Device(1, machine("cuda"))
    yield device
    device.close()
