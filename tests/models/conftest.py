"""Pools of real workers for the tests of models that last, and the tables of tests/pool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "pool"))

from tabgrpc import LocalPool


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    """Two workers, for the tests that don't harm them."""
    with LocalPool(2, store=tmp_path_factory.mktemp("store")) as pool:
        yield pool
