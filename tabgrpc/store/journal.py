"""What an unfinished fit has finished so far: a line for each stage, written after its files, so that the fit can go on after a crash."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tabgrpc.store.files import DamagedModel, StoredFile, replace, sync_folders
from tabgrpc.store.model import RESUME

FORMAT = 1
_ABOUT, _LINES = "fit.json", "stages.jsonl"


class OtherFit(ValueError):
    """What is there was left by a fit of something else."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a member is: column blocks that have ended, ICL layers whose entering vectors are in files, and the files."""

    column_blocks: int
    layers: int
    files: tuple[StoredFile, ...]


class Journal:
    """The stages of one fit in a model's directory. Any thread may add to it."""

    def __init__(self, directory: Path, identity: str, resume: bool) -> None:
        """identity: of all that the fit's bits depend on. resume: go on from what is there; else it is removed.

        Raises OtherFit if what is there isn't of this fit, DamagedModel if it can't be read.
        """
        self.directory, self.folder = directory, RESUME
        self.reached: dict[int, Stage] = {}
        self._lock = threading.Lock()
        self._path = directory / RESUME
        lines: list[str] = []
        if resume and (self._path / _ABOUT).is_file():
            lines = self._read(identity)
        else:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(parents=True, exist_ok=True)
        replace(self._path / _ABOUT, json.dumps({"format": FORMAT, "identity": identity}).encode())
        replace(self._path / _LINES, "".join(line + "\n" for line in lines).encode())  # without a line that was cut short

    def _read(self, identity: str) -> list[str]:
        try:
            about = json.loads((self._path / _ABOUT).read_text())
            found = (about["format"], about["identity"])
            text = (self._path / _LINES).read_text() if (self._path / _LINES).exists() else ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedModel(f"{self._path / _ABOUT} can't be read: {error}") from error
        if found != (FORMAT, identity):
            raise OtherFit(f"{self._path} was left by a fit of another table, other options, another checkpoint or another machine")
        whole = text.split("\n")[:-1]  # what follows the last line's end was cut short
        for line in whole:
            try:
                values = json.loads(line)
                files = tuple(StoredFile(**each) for each in values["files"])
                self._take(int(values["member"]), int(values["column_blocks"]), int(values["layers"]), files)
            except (ValueError, KeyError, TypeError) as error:
                raise DamagedModel(f"{self._path / _LINES} is damaged: {error}") from error
        return whole

    def _take(self, member: int, column_blocks: int, layers: int, files: tuple[StoredFile, ...]) -> None:
        before = self.reached[member].files if member in self.reached else ()
        self.reached[member] = Stage(column_blocks, layers, tuple({f.path: f for f in (*before, *files)}.values()))

    def add(self, member: int, column_blocks: int, layers: int, files: Sequence[StoredFile]) -> None:
        """A member's stage has ended and its files are written."""
        values = {"member": member, "column_blocks": column_blocks, "layers": layers, "files": [asdict(f) for f in files]}
        line = (json.dumps(values) + "\n").encode()
        sync_folders(self.directory, files)
        with self._lock:
            self._take(member, column_blocks, layers, tuple(files))
            handle = os.open(self._path / _LINES, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(handle, line)
                os.fsync(handle)
            finally:
                os.close(handle)

    def discard(self) -> None:
        """Removes what was kept."""
        shutil.rmtree(self._path, ignore_errors=True)
