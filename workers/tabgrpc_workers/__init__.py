"""The worker: one process a device, which owns row shards of models behind the private shard service."""
