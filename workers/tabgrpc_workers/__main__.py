"""``python -m tabgrpc_workers``: one worker process. The only place here that reads argv."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import torch
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tabgrpc.internal.v1.exchange_pb2_grpc import add_ExchangeServiceServicer_to_server
from tabgrpc.internal.v1.shards_pb2_grpc import add_ShardServiceServicer_to_server
from tabgrpc.wire.channels import SERVER_OPTIONS, AddressInUse, bind
from tabgrpc_workers import lifecycle
from tabgrpc_workers.device import Device
from tabgrpc_workers.exchange_service import ExchangeService
from tabgrpc_workers.groups import Groups
from tabgrpc_workers.machines import CpuMachine, machine
from tabgrpc_workers.models import Models
from tabgrpc_workers.service import ShardService

GRACE_SECONDS = 30.0
_THREADS = 32


def main() -> int:
    """Serves until SIGTERM; exit code 0 after a drain, 3 if the address is taken."""
    parser = argparse.ArgumentParser(prog="tabgrpc worker")
    parser.add_argument("--bind", required=True, help="unix:/path or host:port; port 0 picks one")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=1, help="quanta computed at once")
    parser.add_argument("--memory", type=int, default=0, help="bytes that shards may take; 0 is three quarters of what is free")
    parser.add_argument("--share", type=int, default=1, help="workers that share what is free of the device")
    parser.add_argument("--beside", type=int, default=1, help="workers on this machine, which share its host memory")
    parser.add_argument("--host-memory", type=int, default=0, help="bytes for what a GPU has no room for; 0 is half of what is free")
    parser.add_argument("--spill", default="", help="folder for models that memory has no room for and that aren't saved as K/V")
    parser.add_argument("--ready", type=int, default=-1, help="file descriptor to write the address to")
    parser.add_argument("--follow-parent", action="store_true", help="end when standard input is closed")
    parser.add_argument("--trusted-network", default="", metavar="HOST", help="this worker's address on a network for collectives")
    options = parser.parse_args()
    if not options.trusted_network:
        os.environ["NCCL_SOCKET_IFNAME"] = "lo"  # NCCL has no authentication and would take the first other interface
    for watcher in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING"):
        os.environ[watcher] = "0"  # they end the process when a peer is lost; this one's shards must survive it
    if options.follow_parent:
        lifecycle.die_with_parent()
    try:
        own = machine(options.device)
    except RuntimeError as error:
        print(f"tabgrpc worker: {error}", file=sys.stderr)
        return 3
    own.enter()
    policy = own.policy()
    memory = options.memory or own.free_memory() * 3 // 4 // max(1, options.share)
    lifecycle.many_files()
    host = options.host_memory
    if own.kind == "cuda" and not host:
        host = CpuMachine().free_memory() // 2 // max(1, options.beside)
    models = Models(memory, own, Path(options.spill) if options.spill else None, host)
    service = ShardService(models, Device(options.threads if own.kind == "cpu" else 1, own), policy)
    server = grpc.server(ThreadPoolExecutor(_THREADS, "grpc"), options=SERVER_OPTIONS, maximum_concurrent_rpcs=4 * _THREADS)
    add_ShardServiceServicer_to_server(service, server)
    exchange = ExchangeService(service, Groups(_device(options.device), options.trusted_network))
    add_ExchangeServiceServicer_to_server(exchange, server)
    checks = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    try:
        address = bind(server, options.bind)
    except (AddressInUse, OSError) as error:
        print(f"tabgrpc worker: {error}", file=sys.stderr)
        return 3
    server.start()
    checks.set("", health_pb2.HealthCheckResponse.SERVING)

    def stop() -> None:
        service.draining = True
        checks.enter_graceful_shutdown()
        server.stop(GRACE_SECONDS)

    lifecycle.on_termination(stop)
    if options.ready >= 0:
        lifecycle.announce(options.ready, address)
    else:
        print(f"serving on {address}", flush=True)
    server.wait_for_termination()
    service.device.close()
    return 0


def _device(name: str) -> torch.device:
    """With its number, which NCCL asks for."""
    device = torch.device(name)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # gRPC's threads need not be waited for; everything was drained above
