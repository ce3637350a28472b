"""One intra-op thread, as a worker has it, and hypothesis without its clock: a busy machine is no failure."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # shap would compile for half a minute what runs here for milliseconds
settings.register_profile("tabgrpc", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("tabgrpc")


@pytest.fixture(autouse=True)
def _one_thread():
    """The bits depend on torch's thread count; some tests here compute what a worker would."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
