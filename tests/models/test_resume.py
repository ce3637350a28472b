"""A fit that died goes on from its last finished stage, with the bits of one that never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import numbers, options, queries, table

from tabgrpc import LocalPool
from tabgrpc.scheduler import jobs
from tabgrpc.store.journal import Journal, OtherFit
from tabgrpc.store.model import BeingWritten, ModelDirectory
from tabgrpc.wire.errors import NotReady

HERE = Path(__file__).parent
ROWS, MEMBERS = 600, 2
COLUMNS, LAYERS = 2, 6  # of the packaged checkpoint
ASKED = queries(9)


class Died(Exception):
    """The fit's caller is gone."""


def stages(pool: LocalPool, name: str) -> list[tuple[int, int, int]]:
    """(member, column blocks, ICL layers) of the stages in files."""
    path = pool.store / name / "resume" / "stages.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(line["member"], line["column_blocks"], line["layers"]) for line in lines]


@dataclass
class Watch:
    """Sees every stage as it ends. stop: after so many the fit stands still until its caller has given it up."""

    seen: list[tuple[int, int, int]] = field(default_factory=list)
    stop: int = 0
    given_up: threading.Event = field(default_factory=threading.Event)

    def died(self, pool: LocalPool, name: str, sent: str, stop: int, **more: Any) -> None:
        """A fit that is given up after ``stop`` stages."""
        self.seen.clear()
        self.given_up.clear()
        self.stop = stop

        def look(_: object) -> None:
            if len(self.seen) >= stop:
                raise Died

        with pytest.raises(Died):
            pool.client.fit(name, sent, options("classification", n_estimators=MEMBERS, resume=True, **more), progress=look, timeout=120)
        self.given_up.set()
        self.stop = 0
        end = time.monotonic() + 60
        while True:  # the directory is its writer's until the fit has noticed
            try:
                with ModelDirectory(pool.store / name).writing():
                    break
            except BeingWritten:
                assert time.monotonic() < end, "the fit goes on though it was given up"
                time.sleep(0.02)
        self.seen.clear()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch, add = Watch(), Journal.add

    def seen(self: Journal, member: int, blocks: int, layers: int, files: Any) -> None:
        add(self, member, blocks, layers, files)
        watch.seen.append((member, blocks, layers))
        if watch.stop and len(watch.seen) >= watch.stop:
            watch.given_up.wait(60)

    monkeypatch.setattr(Journal, "add", seen)
    return watch


@pytest.fixture(scope="module")
def expected(pair: LocalPool) -> np.ndarray:
    sent = pair.client.upload(table(ROWS, "classification"))
    pair.client.fit("whole", sent, options("classification", n_estimators=MEMBERS))
    assert not (pair.store / "whole" / "resume").exists(), "a short fit that nobody asked to keep leaves no stages"
    return numbers(pair.client.predict("whole", ASKED))


@pytest.mark.parametrize(("placement", "after"), [("rows", 1), ("rows", 5), ("members", 11), ("rows", 15)])
def test_a_fit_given_up_goes_on(pair: LocalPool, expected: np.ndarray, placement: str, after: int, watch: Watch) -> None:
    """At the column blocks, at the ICL layers, with a member finished: no stage is done twice, none is left out, the bits are the same."""
    sent = pair.client.upload(table(ROWS, "classification"))
    name = f"{placement}-{after}"
    watch.died(pair, name, sent, after, placement=placement)
    first = stages(pair, name)
    assert len(first) >= after
    save = "repr" if after == 5 else "kv"  # how it is kept may be changed: no stage depends on it
    pair.client.fit(name, sent, options("classification", n_estimators=MEMBERS, resume=True, placement=placement, save=save))
    every = {(m, b, 0) for m in range(MEMBERS) for b in range(1, COLUMNS + 1)}
    every |= {(m, COLUMNS, at) for m in range(MEMBERS) for at in range(1, LAYERS + 1)}
    assert set(first).isdisjoint(watch.seen), "a finished stage was computed again"
    assert set(first) | set(watch.seen) == every
    assert np.array_equal(numbers(pair.client.predict(name, ASKED)), expected)
    assert not (pair.store / name / "resume").exists()
    assert not [problem for _, problem in ModelDirectory(pair.store / name).verify() if problem]


def test_what_another_fit_left_is_refused_or_removed(pair: LocalPool, expected: np.ndarray, watch: Watch) -> None:
    """Other rows, other options: stages of one must never end in a model of the other. Without resume it is fitted anew."""
    sent, other = (pair.client.upload(table(ROWS, "classification", seed)) for seed in (0, 1))
    watch.died(pair, "mixed", sent, 2)
    for table_name, more in ((other, {}), (sent, {"random_state": 5}), (sent, {"dtype": "float64"})):
        with pytest.raises(NotReady, match=r"left by a fit of another table.*without --resume"):
            pair.client.fit("mixed", table_name, options("classification", n_estimators=MEMBERS, resume=True, **more))
    assert len(stages(pair, "mixed")) >= 2, "a refusal removes nothing"
    pair.client.fit("mixed", sent, options("classification", n_estimators=MEMBERS))
    assert np.array_equal(numbers(pair.client.predict("mixed", ASKED)), expected)


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_a_damaged_stage_is_named(pair: LocalPool, damage: str, watch: Watch) -> None:
    sent = pair.client.upload(table(ROWS, "classification"))
    watch.died(pair, damage, sent, 2, placement="rows")
    path = sorted((pair.store / damage / "resume").rglob("column-*.safetensors"))[-1]
    data = path.read_bytes()
    match damage:
        case "flipped":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "short":
            path.write_bytes(data[:-1])
        case "gone":
            path.unlink()
    with pytest.raises(NotReady, match=path.name):
        pair.client.fit(damage, sent, options("classification", n_estimators=MEMBERS, resume=True))


def test_a_line_cut_short_is_a_stage_that_never_ended(tmp_path: Path) -> None:
    """The crash came while it was written: what came before it counts, and what follows is not glued to it."""
    kept = Journal(tmp_path, "it", resume=False)
    kept.add(0, 1, 0, [])
    kept.add(0, 2, 0, [])
    path = tmp_path / "resume" / "stages.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    again = Journal(tmp_path, "it", resume=True)
    assert (again.reached[0].column_blocks, again.reached[0].layers) == (1, 0)
    again.add(0, 2, 0, [])
    assert Journal(tmp_path, "it", resume=True).reached[0].column_blocks == 2
    with pytest.raises(OtherFit):
        Journal(tmp_path, "another", resume=True)
    assert Journal(tmp_path, "another", resume=False).reached == {}


def test_a_long_fit_keeps_its_stages_unasked(pair: LocalPool, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a worker that dies costs the stage it was in, not the fit: the next attempt goes on."""
    monkeypatch.setattr(jobs, "KEEP_STAGES_SECONDS", 0.0)
    sent = pair.client.upload(table(ROWS, "classification"))
    struck: list[int] = []
    opened: list[int] = []
    real = Journal.add

    def strike(self: Journal, *stage: object) -> None:
        real(self, *stage)  # type: ignore[arg-type]
        opened.append(1)
        if len(opened) == 6:
            struck.append(pair.client.pool().workers[0].pid)
            os.kill(struck[0], signal.SIGKILL)

    monkeypatch.setattr(Journal, "add", strike)
    pair.client.fit("struck", sent, options("classification", n_estimators=MEMBERS, placement="members"), timeout=200)
    assert struck
    assert len(opened) == MEMBERS * (COLUMNS + LAYERS), "each stage ended once, over both attempts"
    assert np.array_equal(numbers(pair.client.predict("struck", ASKED)), expected)


_FIT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tables import numbers, options, queries, table
from tabgrpc import LocalPool
if __name__ == "__main__":
    with LocalPool(int(sys.argv[3]), store=Path(sys.argv[2])) as pool:
        sent = pool.client.upload(table(int(sys.argv[4]), "classification"))
        print("fitting", flush=True)
        pool.client.fit("m", sent, options("classification", n_estimators=2, resume=True, placement="rows"))
        print(numbers(pool.client.predict("m", queries(9))).tobytes().hex())
"""


def test_a_killed_process_goes_on_with_other_workers(expected: np.ndarray, tmp_path: Path) -> None:
    """SIGKILL of the scheduler's process in the middle, its workers gone with it; one worker goes on where two were."""
    path = tmp_path / "m" / "resume" / "stages.jsonl"
    command = [sys.executable, "-c", _FIT, str(HERE.parent / "pool"), str(tmp_path), "2", str(ROWS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fitting\n"
        while not path.exists() or len(path.read_text().splitlines()) < 7:
            assert process.poll() is None, "it ended before it could be killed"
        process.kill()
    assert not (tmp_path / "m" / "manifest.json").exists()
    done = subprocess.run([*command[:5], "1", str(ROWS)], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == expected.tobytes().hex()
    assert len([path for path in (tmp_path / "m").iterdir() if path.is_dir()]) == 1, "nothing of the fit that died is left"
