"""``python -m tabgrpc_workers.bench``: one shape on one GPU, measured in a process of its own. Prints a line of JSON.

The table is prepared features on the device; what is timed is the executor that a worker runs, from those features to outputs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tabgrpc.backbones.upstream import Upstream
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.head import Head
from tabgrpc.core.ownership import Run
from tabgrpc.core.reduction import complete
from tabgrpc_workers import fit, query
from tabgrpc_workers.device import FIT, PREDICT, Device
from tabgrpc_workers.machines import CpuMachine, machine
from tabgrpc_workers.movers import mover
from tabgrpc_workers.residency import Residency
from tabgrpc_workers.shard import ModelShards, Shard

QUERIES = 512
BATCHES = (8, 64, 512)
CONFIG = {"row_rope_interleaved": False}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tabgrpc bench gpu")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--features", type=int, required=True)
    parser.add_argument("--members", type=int, default=1, help="each fitted in turn; K/V that the device has no room for go to the host")
    parser.add_argument("--device-memory", type=int, default=0, help="bytes of the device that members' K/V may take; 0 is all there are")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--repeats", type=int, default=3, help="timed fits after the first; 0 warms on a small table and times one")
    parser.add_argument("--upstream", action="store_true", help="tabicl in the same process, and the error against its float32")
    parser.add_argument("--profile", action="store_true", help="the kernels that took longest, to standard error")
    options = parser.parse_args()
    bench = Bench(options.rows, options.features, options.dtype)
    if options.members > 1:
        print(json.dumps(bench.ensemble(options.members, options.device_memory)), flush=True)
        return
    found = bench.run(options.repeats, options.profile)
    if options.upstream:
        found |= upstream(options.rows, options.features, found.pop("outputs"))
    found.pop("outputs", None)
    print(json.dumps(found), flush=True)


def weights() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """TabICL v2's default network, every parameter random."""
    from tabgrpc.backbones.network import TabICL

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    state = TabICL(**CONFIG, zero_init=False).state_dict()
    return CONFIG, {
        name: value + 0.02 * torch.randn(value.shape, generator=generator) if value.is_floating_point() and value.ndim else value
        for name, value in state.items()
    }


def table(rows: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Context rows, their classes and query rows, float32 on the device."""
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(rows, features, device="cuda", generator=generator)
    y = ((x[:, 0] + x[:, 1 % features] * x[:, 2 % features]) > 0).float() + (x[:, 3 % features] > 1).float()
    return x, y, torch.randn(QUERIES, features, device="cuda", generator=generator)


def seconds(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


class Bench:
    """One member of a table on this process's GPU."""

    def __init__(self, rows: int, features: int, dtype: str) -> None:
        self.machine = machine("cuda")
        self.device = Device(1, self.machine)
        self.machine.enter()
        self.dtype = self.machine.dtypes[dtype]
        began = time.perf_counter()
        self.recipe = self.machine.recipe(*weights(), self.dtype)
        self.load_seconds = time.perf_counter() - began
        self.rows, self.features = rows, features
        x, self.y, queries = table(rows, features)
        self.x, self.queries = x.to(self.dtype), queries.to(self.dtype)
        del x
        self.model, self.shard = self.opened(self.x, self.y)

    def opened(self, x: Tensor, y: Tensor, store: bool = False) -> tuple[ModelShards, Shard]:
        geometry = Geometry.of(x.shape[0], x.shape[1], "cuda")
        shard = Shard(0, (Run(0, geometry.blocks),))
        model = ModelShards("bench", 1, self.recipe.backbone, geometry, x.shape[1], store, {0: shard}, self.recipe)
        fit.open_shard(model, shard, {0: x}, {0: y})
        return model, shard

    def fit(self) -> None:
        self.shard.kv = []  # the last fit's go first, or two would be held
        self.shard.captured.clear()
        self.model, self.shard = self.opened(self.x, self.y)
        self.device.run(fit.member(self.model, self.shard, self.device, lambda _: None), FIT)

    def warm(self) -> None:
        """A small table of the same tile shapes: everything is compiled and loaded."""
        geometry = self.model.geometry
        x, y, _ = table(2 * geometry.block + geometry.quantum, self.features)
        model, shard = self.opened(x.to(self.dtype), y)
        model.geometry = Geometry(**{**geometry.as_dict(), "rows": x.shape[0]})
        shard.runs = (Run(0, model.geometry.blocks),)
        shard.data = []
        fit.open_shard(model, shard, {0: x.to(self.dtype)}, {0: y})
        self.device.run(fit.member(model, shard, self.device, lambda _: None), FIT)

    def stages(self) -> dict[str, float]:
        """Seconds of each stage of one more fit."""
        self.shard.kv = []
        self.shard.captured.clear()
        model, shard = self.model, self.shard = self.opened(self.x, self.y)
        shape, quiet = model.backbone.shape, lambda _: None

        def columns() -> None:
            for block in range(shape.column_blocks):
                nodes = self.device.run(fit.column(model, shard, self.device, block, quiet), FIT)
                with torch.inference_mode():
                    fit.column_end(model, shard, block, complete(nodes, model.geometry.blocks))

        def icl() -> None:
            for layer in range(shape.icl_layers - 1):
                self.device.run(fit.icl(model, shard, self.device, layer, [], quiet), FIT)

        return {
            "column": seconds(columns),
            "row": seconds(lambda: self.device.run(fit.rows(model, shard, self.device, quiet), FIT)),
            "icl": seconds(icl),
        }

    def predict(self, batch: int) -> Tensor:
        tiles = (query.tile(self.model, self.shard, part, Head()) for part in self.queries.split(batch))
        return torch.cat([self.device.run(tile, PREDICT) for tile in tiles])

    def run(self, repeats: int, profile: bool) -> dict[str, Any]:
        """All figures. The bits of all batch sizes are compared."""
        ceilings = measured_ceilings()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if repeats:
            first = seconds(self.fit)
            fits = [seconds(self.fit) for _ in range(repeats)]
        else:
            first = seconds(self.warm)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            fits = [seconds(self.fit)]
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        stages = self.stages() if repeats else {}
        predicts, outputs = {}, {}
        for batch in BATCHES:
            outputs[batch] = self.predict(batch)
            predicts[batch] = statistics.median(seconds(lambda batch=batch: self.predict(batch)) for _ in range(3))  # type: ignore[misc]
        if profile:
            self.profile()
        took = statistics.median(fits)
        shape = self.model.backbone.shape
        kv = shape.context_bytes(self.rows, self.dtype.itemsize)
        return {
            "rows": self.rows, "features": self.features, "members": 1, "workers": 1, "dtype": str(self.dtype).removeprefix("torch."),
            "device": torch.cuda.get_device_name(), "torch": torch.__version__, "geometry": self.model.geometry.as_dict(),
            ("first_fit_s" if repeats else "warm_up_s"): first, "fit_s": took, "fits_s": fits, "load_checkpoint_s": self.load_seconds,
            "stages_s": stages, "predict_s": {str(batch): s for batch, s in predicts.items()},
            "peak_allocated": peak, "peak_reserved": reserved,
            "fit_tflops": shape.fit_flops(self.rows, self.features) / took / 1e12,
            "predict_tbps": {str(b): kv * (QUERIES // b) / s / 1e12 for b, s in predicts.items() if b <= 64},
            "ceilings": ceilings, "batches_equal": all(torch.equal(out, outputs[BATCHES[0]]) for out in outputs.values()),
            "outputs": outputs[BATCHES[-1]],
        }  # fmt: skip

    def ensemble(self, members: int, device_memory: int) -> dict[str, Any]:
        """Members fitted in turn, the least recently used going to pinned host memory, then to files, when the device is full.

        Every member is fitted on the same features: what is measured is time and room, not accuracy.
        """
        ceilings = measured_ceilings()
        warm = seconds(self.warm)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        shape, item = self.model.backbone.shape, self.dtype.itemsize
        kv = shape.context_bytes(self.rows, item) + shape.column_bytes(self.features, item)
        working = self.rows * (shape.icl * 4 + self.features * item) + (4 << 30)
        with tempfile.TemporaryDirectory(prefix="tabgrpc-bench-") as spill:
            budget = device_memory or self.machine.free_memory() - working
            tiers = Residency(budget, Path(spill), host_memory() * 4 // 5, mover(str(self.machine.device)))
            held: list[tuple[ModelShards, Shard]] = []
            fits = []
            self.shard.data = []

            def fitted(number: int) -> None:
                self.device.run(tiers.reserve(f"member-{number}", kv), FIT)
                model, shard = self.opened(self.x, self.y)
                model.model_version, model.stream = f"member-{number}", tiers.stream
                self.device.run(fit.member(model, shard, self.device, lambda _: None), FIT)
                tiers.put(model)
                tiers.settle(model.model_version)
                held.append((model, shard))

            for number in range(members):
                fits.append(seconds(lambda number=number: fitted(number)))  # type: ignore[misc]

            def asked(batch: int) -> Tensor:
                total = torch.zeros(())
                for part in self.queries.split(batch):
                    for model, shard in held:
                        total = total + self.device.run(query.tile(model, shard, part, Head()), PREDICT).sum()
                return total

            predicts = {batch: seconds(lambda batch=batch: asked(batch)) for batch in (QUERIES,)}  # type: ignore[misc]
            usage = tiers.usage()
        return {
            "rows": self.rows, "features": self.features, "members": members, "workers": 1,
            "dtype": str(self.dtype).removeprefix("torch."), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "geometry": self.model.geometry.as_dict(), "warm_up_s": warm, "fit_s": sum(fits), "fits_s": [sum(fits)], "member_fits_s": fits,
            "stages_s": {}, "predict_s": {str(batch): took for batch, took in predicts.items()}, "predict_tbps": {},
            "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved(),
            "fit_tflops": members * shape.fit_flops(self.rows, self.features) / sum(fits) / 1e12,
            "tiers": usage.tiers, "stalled_s": tiers.meter.stalled_seconds, "streamed": tiers.meter.streamed_bytes,
            "ceilings": ceilings, "batches_equal": True,
        }  # fmt: skip

    def profile(self) -> None:
        import sys

        from torch.profiler import ProfilerActivity, profile

        for what, work in (("fit", self.fit), ("predict by 8", lambda: self.predict(8))):
            with profile(activities=[ProfilerActivity.CUDA]) as found:
                work()
                torch.cuda.synchronize()
            rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)[:12]
            lines = [f"  {row.self_device_time_total / 1e3:10.1f} ms {row.count:7d} {row.key[:60]}" for row in rows]
            print(what, *lines, sep="\n", file=sys.stderr)


def host_memory() -> int:
    """Bytes of host memory that are free, as far as this process may take them."""
    return CpuMachine().free_memory()


def measured_ceilings() -> dict[str, float]:
    """What this device reaches now: a matrix product and cuDNN attention in half precision (TFLOP/s), a copy (TB/s read and written)."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    q = torch.randn(1, 8, 16384, 64, device="cuda", dtype=torch.float16)

    def attention() -> None:
        torch.ops.aten._scaled_dot_product_cudnn_attention(q, q, q, None, True)

    def best(work: Callable[[], Any], amount: float) -> float:
        work()
        return amount / statistics.median(seconds(work) for _ in range(5)) / 1e12

    return {
        "matmul_tflops": best(lambda: a @ b, 2.0 * n**3),
        "copy_tbps": best(lambda: target.copy_(source), 2.0 * source.numel()),
        "attention_tflops": best(attention, 4.0 * 16384**2 * 512),
    }


def upstream(rows: int, features: int, outputs: Tensor) -> dict[str, Any]:
    """tabicl on the same device: seconds and peak in half precision and float32 where they fit, and errors against its float32."""
    peer = Upstream(*weights(), "cuda")
    x, y, queries = table(rows, features)
    found: dict[str, Any] = {}
    answers: dict[bool, Tensor] = {}
    for half, name in ((True, "upstream_half"), (False, "upstream_float32")):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        fitting, asking = peer.stages(x, y, queries, half)
        try:
            fitting()
            took = seconds(fitting)
            answers[half] = asking()
            asked = seconds(asking)
        except torch.OutOfMemoryError as error:
            return found | {name: f"out of memory: {str(error).splitlines()[0][:120]}"}
        found[name] = {"fit_s": took, "predict_512_s": asked, "peak_allocated": torch.cuda.max_memory_allocated()}
    half_answer, truth = answers[True], answers[False]
    ours = outputs[:, : truth.shape[1]].float().cpu()
    exact = truth.double()

    def errors(values: Tensor) -> dict[str, float]:
        off = values.double() - exact
        return {"frobenius": float(off.norm() / exact.norm()), "max": float(off.abs().max() / exact.abs().max())}

    own, theirs = errors(ours), errors(half_answer)
    return found | {"error": own, "upstream_half_error": theirs, "error_ratio": own["frobenius"] / theirs["frobenius"]}


if __name__ == "__main__":
    main()
