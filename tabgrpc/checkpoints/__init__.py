"""Network weights: the `mini` pairs that ship with the package, and the one way to load and save a checkpoint.
A pair is NAME.safetensors (half precision) and NAME.json (kind, constructor arguments, sha256); nothing here unpickles."""

from tabgrpc.checkpoints.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint

__all__ = ["Checkpoint", "CheckpointError", "load_checkpoint", "save_checkpoint"]
