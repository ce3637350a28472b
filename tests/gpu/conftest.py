"""What the GPU tests share. They are skipped where there is no CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tabgrpc_workers.device import Device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if "/gpu/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def weights() -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """TabICL v2's default network, every parameter random: zero-initialised residuals would hide a fault."""
    from tabgrpc_workers import bench

    return bench.weights()


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    from tabgrpc_workers.machines import machine

    device = Device(1, machine("cuda"))
    yield device
    device.close()
