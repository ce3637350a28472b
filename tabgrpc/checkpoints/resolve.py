"""Which checkpoint a name means: `auto`, `mini`, `tabicl-v2`, or a path.

TabICL v2 is looked for in the Hugging Face cache (HF_HOME is honoured), then on the hub without an account, and not at
all on the hub under HF_HUB_OFFLINE. `auto` falls back to `mini` when it isn't there.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from pathlib import Path

from tabgrpc.checkpoints.checkpoint import KINDS, Checkpoint, CheckpointError, load_checkpoint

REPOSITORY = "jingang/TabICL"
FILES = {
    "classification": "tabicl-classifier-v2-20260212.ckpt",
    "regression": "tabicl-regressor-v2-20260212.ckpt",
}
REACH_SECONDS = 3.0
logger = logging.getLogger("tabgrpc")


def resolve(name: str, task: str, *, download: bool = True) -> tuple[Checkpoint, str | None]:
    """The checkpoint behind a name, checked for the task, and a warning line if it isn't the one `auto` prefers.

    name: "auto" (or empty), "mini", "tabicl-v2", or a path as in `load_checkpoint`.
    task: "classification" or "regression". download: False doesn't ask the hub.
    Raises CheckpointError: no such file, a checkpoint of another kind, TabICL v2 asked for by name and not to be had.
    """
    if task not in KINDS:
        raise CheckpointError(f"{name}: task must be classification or regression, not {task!r}")
    if name not in ("", "auto", "tabicl-v2"):
        return load_checkpoint(name, task), None
    path, why = find_upstream(task, download=download)
    if path is not None:
        return dataclasses.replace(load_checkpoint(path, task), name="tabicl-v2"), None
    if name == "tabicl-v2":
        raise CheckpointError(f"tabicl-v2: {FILES[task]} {why}")
    warning = f"checkpoint: TabICL v2 {why}; using mini, a small network of lower accuracy"
    return load_checkpoint("mini", task), warning


def find_upstream(task: str, *, download: bool = True) -> tuple[Path | None, str]:
    """Path of TabICL v2's file for the task, or None and why not ("is not in ...").

    The hub has three seconds to answer; a download that has begun takes the time it needs.
    download: False looks in the cache only.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    filename = FILES[task]
    try:
        return Path(hf_hub_download(REPOSITORY, filename, local_files_only=True)), ""
    except (LocalEntryNotFoundError, OSError):
        missing = f"is not in the Hugging Face cache ({constants.HF_HUB_CACHE})"
    if constants.HF_HUB_OFFLINE:
        return None, f"{missing} and HF_HUB_OFFLINE is set"
    if not download:
        return None, missing
    if not _reachable(filename):
        return None, f"{missing} and the hub did not answer within {REACH_SECONDS:.0f} s"
    try:
        return Path(hf_hub_download(REPOSITORY, filename, token=False)), ""
    except Exception as error:  # whatever the network, the hub or the disk raises: the outcome is the same
        return None, f"{missing} and could not be downloaded ({type(error).__name__})"


def _reachable(filename: str) -> bool:
    """Whether the hub answers for the file in time. In a thread: a name lookup can outlast any time limit given."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    answered, done = threading.Event(), threading.Event()

    def ask() -> None:
        try:
            get_hf_file_metadata(hf_hub_url(REPOSITORY, filename), token=False, timeout=REACH_SECONDS)
            answered.set()
        except Exception:  # as above
            logger.debug("the hub did not answer", exc_info=True)
        finally:
            done.set()

    threading.Thread(target=ask, name="checkpoint-hub", daemon=True).start()
    done.wait(REACH_SECONDS)
    return answered.is_set()
