"""Which devices local workers get, without asking torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabgrpc.scheduler import devices
from tabgrpc.scheduler.starting import start
from tabgrpc.wire.errors import Unavailable


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Device files as a driver with four GPUs makes them."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 4), ("", 0), ("-1", 0), ("2", 1), ("0,3", 2), ("GPU-7a,GPU-8b", 2), ("0,1,2,3,4,5", 4)]
)
def test_the_gpus_that_are_visible(dev: Path, visible: str | None, count: int) -> None:
    """CUDA_VISIBLE_DEVICES is honoured; the driver's other files are no GPUs."""
    assert devices.gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}, dev) == count


def test_no_driver(tmp_path: Path) -> None:
    assert devices.gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == 0
    assert devices.chosen("auto", {}, tmp_path) == "cpu"
    assert devices.workers("cpu", {}, tmp_path) == 2


def test_slots_go_round(dev: Path) -> None:
    """Six workers on four GPUs: two of the GPUs have two, and memory is divided by the most that share one."""
    assert [devices.of_slot("cuda", slot, {}, dev) for slot in range(6)] == [f"cuda:{at}" for at in (0, 1, 2, 3, 0, 1)]
    assert [devices.sharing("cuda", spawned, {}, dev) for spawned in (1, 4, 5, 9)] == [1, 1, 2, 3]
    assert devices.workers("cuda", {}, dev) == 4
    assert devices.of_slot("cpu", 3, {}, dev) == "cpu"
    assert devices.sharing("cpu", 3, {}, dev) == 3


def test_what_is_asked_for_is_taken(dev: Path) -> None:
    assert devices.chosen("cuda:1", {}, dev) == "cuda:1"
    assert devices.chosen("cpu", {}, dev) == "cpu"


def test_auto_takes_the_cpu_where_no_worker_starts_on_a_gpu(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A driver's files beside a torch that can't use them. Catches a laptop on which nothing works until a flag is found."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(devices, "chosen", lambda device: "cuda" if device == "auto" else device)
    pool = start(1, "auto")
    try:
        assert [worker.device for worker in pool.serving()] == ["cpu"]
        assert "no worker starts on a GPU" in caplog.text
    finally:
        pool.close(5.0)
    with pytest.raises(Unavailable, match="died at start-up"):
        start(1, "cuda")
