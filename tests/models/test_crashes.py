"""SIGKILL at random moments of a save: what is there afterwards is the old version or the new one, whole, and the next save works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tabgrpc.store.model import ModelDirectory

KILLS = 50
SAVER = """
import json, os, random, signal, sys, time
from dataclasses import replace
from pathlib import Path
import torch
from tabgrpc.core.geometry import Geometry
from tabgrpc.core.policy import NumericPolicy
from tabgrpc.store import paths, tiles
from tabgrpc.store.model import Manifest, ModelDirectory
import numpy as np

torch.set_num_threads(1)
directory = ModelDirectory(Path(sys.argv[1]))
kills, seed = int(sys.argv[2]), int(sys.argv[3])

def save():
    \"\"\"A version as a fit writes it: members, tile files, manifest. Its numbers tell which version it is.\"\"\"
    with directory.writing() as (version, folder):
        files = []
        for chunk in range(6):
            tensors = {f"k/{layer}/{chunk}": torch.full((4, 64, 16), float(version)) for layer in range(4)}
            files.append(tiles.save(directory.path, paths.chunk_path(folder, 0, chunk), tensors))
        members = directory.write_members(folder, {"version": np.array(version)})
        directory.commit(Manifest(
            version=version, folder=folder, task="regression", rows=300, schema="{}", geometry=Geometry.of(300, 7),
            policy=NumericPolicy("float32", "cpu", "x", "eager", (), "c"), checkpoint={"name": "m", "kind": "regressor", "sha256": "0"},
            temperature=0.9, average_probabilities=False,
            features=7, members=1, class_counts=(), warnings=(), written_by="t", members_file=members, files=tuple(files)))
    return version

began = time.perf_counter()
save()
length = time.perf_counter() - began
random.seed(seed)
seen = []
for _ in range(kills):
    before = directory.manifest().version
    child = os.fork()
    if child == 0:
        save()
        os._exit(0)
    time.sleep(random.uniform(0, 1.5 * length))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    manifest = directory.manifest()
    faults = [fault for _, fault in directory.verify() if fault]
    numbers = {float(t.flatten()[0]) for f in manifest.files for t in tiles.load(directory.path, f).values()}
    arrays = directory.read_members(manifest.members_file)
    whole = numbers == {float(manifest.version)} and int(arrays["version"]) == manifest.version
    seen.append([before, manifest.version, faults, whole])
last = save()
print(json.dumps({"seen": seen, "last": last, "length": length}))
"""


def test_fifty_kills_leave_the_old_version_or_the_new_one(tmp_path: Path) -> None:
    """Also: no lock is left behind, and the next whole save clears everything away that the killed ones had begun."""
    done = subprocess.run(
        [sys.executable, "-c", SAVER, str(tmp_path / "m"), str(KILLS), "7"], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["seen"]) == KILLS
    for before, after, faults, whole in found["seen"]:
        assert after in (before, before + 1)
        assert not faults and whole, (before, after, faults)
    outcomes = {after - before for before, after, _, _ in found["seen"]}
    assert outcomes == {0, 1}, f"the kills came all too early or all too late: saves took {found['length']:.3f} s"
    assert ModelDirectory(tmp_path / "m").manifest().version == found["last"]
    assert len(list((tmp_path / "m").iterdir())) == 2, "one version's folder and the manifest"


@pytest.mark.slow
def test_kills_of_a_whole_pool_while_it_saves(tmp_path: Path) -> None:
    """The same with real workers writing: the process that holds scheduler and workers is killed while a refit saves."""
    import random
    import time

    script = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tables import options, table
from tabgrpc import LocalPool
if __name__ == "__main__":
    with LocalPool(2, store=Path(sys.argv[2])) as pool:
        sent = pool.client.upload(table(2_000, "regression"))
        print("ready", flush=True)
        while True:
            pool.client.fit("m", sent, options("regression", n_estimators=2, placement="members"))
            print("fitted", flush=True)
"""
    random.seed(3)
    pool_tests = str(Path(__file__).resolve().parent.parent / "pool")
    before = 0
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", script, pool_tests, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line == "fitted\n":
                    break
            folders = len(list((tmp_path / "m").iterdir()))
            end = time.monotonic() + 60
            while len(list((tmp_path / "m").iterdir())) == folders and time.monotonic() < end:
                time.sleep(0.002)  # until the next version's folder is there
            time.sleep(random.uniform(0, 3.0))
            process.kill()
        directory = ModelDirectory(tmp_path / "m")
        assert directory.manifest().version > before
        assert not [fault for _, fault in directory.verify() if fault]
        before = directory.manifest().version
