"""Local workers as processes: spawned, watched, stopped. None outlives this process, whatever kills it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tabgrpc.scheduler import devices
from tabgrpc.wire.errors import Unavailable

READY_SECONDS = {"cpu": 120.0, "cuda": 600.0}
"""On a GPU the first start of all compiles kernels."""
STOP_SECONDS = 35.0


class WorkerProcess:
    """One spawned worker. ``address`` is where it serves."""

    def __init__(self, slot: int, directory: Path, device: str, threads: int, memory: int, beside: int) -> None:
        """Starts the process; ``wait_ready`` waits for it. device: cpu, or cuda for a GPU by the slot's turn. memory: bytes that its shards
        may take, 0 is a share of what is free, given that ``beside`` workers are started in all.

        The socket's name is unique, so that no two workers ever share one."""
        self.slot = slot
        self._ready_seconds = READY_SECONDS["cuda" if device.startswith("cuda") else "cpu"]
        path = directory / f"w{slot}-{os.urandom(4).hex()}.sock"
        reader, writer = os.pipe()
        command = [sys.executable, "-m", "tabgrpc_workers", "--bind", f"unix:{path}", "--threads", str(threads)]
        command += ["--device", devices.of_slot(device, slot), "--share", str(devices.sharing(device, beside))]
        command += ["--beside", str(max(1, beside))]
        command += ["--memory", str(memory), "--ready", str(writer), "--follow-parent"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[writer], env=environment, process_group=0
            )
        finally:
            os.close(writer)
        self._reader = reader
        self._path = path
        self.address = ""
        self._draining = False

    def wait_ready(self) -> None:
        """Waits until the worker serves. Raises Unavailable, saying why, if it dies or takes too long."""
        end = time.monotonic() + self._ready_seconds
        with os.fdopen(self._reader) as pipe:
            while not select.select([pipe], [], [], 0.2)[0]:
                if time.monotonic() > end:
                    self.stop(0)
                    raise Unavailable(f"worker {self.slot} was not ready after {self._ready_seconds:.0f} s")
            self.address = pipe.readline().strip()
        if not self.address:
            raise Unavailable(f"worker {self.slot} died at start-up: {self.reason()}")

    def reason(self) -> str:
        """Why the process ended, in words."""
        code = self.process.wait(timeout=10)
        if code >= 0:
            return f"exit code {code}"
        hint = ", likely out of memory" if -code == signal.SIGKILL else ""
        return f"killed (signal {-code} {signal.Signals(-code).name}{hint})"

    def drain(self) -> None:
        """Asks the worker to end, once: a second signal would have it drop what it does."""
        if self.process.poll() is None and not self._draining:
            self._draining = True
            self.process.terminate()

    def stop(self, grace: float = STOP_SECONDS) -> None:
        """Drains the worker, and kills it after ``grace`` seconds."""
        if self.process.poll() is None and grace > 0:
            self.drain()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._path.unlink(missing_ok=True)
