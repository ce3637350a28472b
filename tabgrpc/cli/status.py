"""`tabgrpc status`: the workers of a running pool and what they own."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from tabgrpc.cli import options
from tabgrpc.cli.errors import PoolFailure
from tabgrpc.cli.pools import PoolChoice, client_of
from tabgrpc.cli.progress import Reporter, bytes_text

if TYPE_CHECKING:
    from rich.table import Table

    from tabgrpc.v1 import pool_pb2


def status(
    pool: options.Address = options.DEFAULT_ADDRESS,
    timeout: options.Timeout = 60.0,
    as_json: options.Json = False,
) -> None:
    """Show the workers and which chunks of which model each one owns. Exit code 3 if a worker is lost."""
    with client_of(PoolChoice(pool, None, "auto", 1, timeout), None, Reporter(quiet=True)) as client:
        found = client.pool()
    if as_json:
        from google.protobuf.json_format import MessageToDict

        told = MessageToDict(found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        print(json.dumps(told, ensure_ascii=False))
    else:
        from tabgrpc.cli.tables import show

        print(f"pool {pool}, tabgrpc {found.version}, numeric policy {found.policy}")
        show(workers_table(found))
        if found.ownership:
            print()
            show(ownership_table(found))
    lost = [worker.incarnation for worker in found.workers if not _serving(worker)]
    if lost:
        raise PoolFailure(f"pool {pool}: not serving: {', '.join(lost)}")


def workers_table(found: pool_pb2.GetPoolResponse) -> Table:
    """One row a worker."""
    from rich.table import Table

    table = Table("worker", "device", "state", "pid", "memory used", "of", "queued")
    for worker in found.workers:
        state = "serving" if _serving(worker) else f"lost ({worker.reason})" if worker.reason else "lost"
        used, budget = bytes_text(worker.memory_used), bytes_text(worker.memory_budget)
        table.add_row(worker.incarnation, worker.device, state, str(worker.pid), used, budget, str(worker.queued))
    return table


def ownership_table(found: pool_pb2.GetPoolResponse) -> Table:
    """One row a model version and worker: how many chunks of how many members it owns."""
    from rich.table import Table

    table = Table("model", "epoch", "worker", "chunks", "of", "members", "exchange")
    for owned in found.ownership:
        chunks = Counter(owner for member in owned.members for owner in member.owners)
        members = Counter(owner for member in owned.members for owner in set(member.owners))
        total = sum(chunks.values())
        for owner in sorted(chunks):
            table.add_row(
                owned.model_version,
                str(owned.epoch),
                owner,
                str(chunks[owner]),
                str(total),
                str(members[owner]),
                owned.exchange,
            )
    return table


def _serving(worker: pool_pb2.Worker) -> bool:
    from tabgrpc.v1 import pool_pb2

    return worker.state == pool_pb2.WORKER_STATE_SERVING
