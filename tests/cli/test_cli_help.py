"""What a user sees before anything is computed: help, options, versions, and what this machine has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_support import Ended, environment

from tabgrpc import machine
from tabgrpc.cli.app import app
from tabgrpc.cli.progress import bytes_text, seconds_text

HEAVY = ("torch", "grpc", "pandas", "pyarrow", "sklearn", "tabicl", "huggingface_hub")


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["models", "ls", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    """A slow `--help` is the first thing that a user would notice."""
    code = f"import sys\nfrom tabgrpc.cli.app import main\ncode = main({words!r})\n"
    code += f"print('LOADED', sorted(set({HEAVY!r}) & set(sys.modules)), code)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "LOADED [] 0", done.stdout + done.stderr


def _commands(command: Any, path: str = "tabgrpc") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def test_every_option_has_a_variable_and_a_help_line() -> None:
    for path, command in _commands(typer.main.get_command(app)):
        assert command.help or path == "tabgrpc", path
        for option in command.params:
            if option.param_type_name == "option" and option.name not in ("version", "help"):
                assert option.help, (path, option.name)
                assert str(option.envvar).startswith("TABGRPC_"), (path, option.name)


def test_options_from_the_environment(here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABGRPC_TARGET", "absent")
    Path("t.csv").write_text("x,y\n1,a\n2,b\n")
    ended = here("fit", "t.csv", "-o", "model")
    assert ended.code == 2
    assert "'absent' not found" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["fit", "t.csv", "-o", "m"], "Missing option '--target'"),
        (["fit", "t.csv", "--target", "y", "--wrong"], "No such option: --wrong"),
        (["fit", "t.csv", "--target", "y"], "-o MODEL"),
        (["fit", "t.csv", "--target", "y", "-o", "m", "--n-estimators", "0"], "--n-estimators"),
        (["predict", "m", "t.csv", "-o", "o.csv", "--quantiles", "0.1,1.5"], "'1.5'"),
        (["worker", "--memory", "lots"], "'lots'"),
    ],
)
def test_wrong_command_lines(here: Callable[..., Ended], words: list[str], said: str) -> None:
    """Exit code 2 and one line, from click's own errors too."""
    ended = here(*words)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert said in ended.err


def test_tracebacks_only_on_request(here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in here("fit", "no.csv", "--target", "y", "-o", "m").err
    monkeypatch.setenv("TABGRPC_DEBUG", "1")
    assert "Traceback" in here("fit", "no.csv", "--target", "y", "-o", "m").err


def test_doctor_plans_without_a_table(here: Callable[..., Ended]) -> None:
    """The choice, its bytes and seconds and why; many classes count their contexts; a size that is none is the user's mistake."""
    plan = json.loads(here("doctor", "--plan", "3000x20", "--members", 8, "--workers", 2, "--json").out)["plan"]
    assert (plan["placement"], plan["contexts"]) == ("members", 1)
    assert "nothing exchanged; by rows a fit and a predict would take" in plan["why"]
    assert 0 < plan["resident_bytes"] < plan["peak_bytes"] <= plan["budget_bytes"]
    many = json.loads(here("doctor", "--plan", "3000x20", "--workers", 2, "--classes", 101, "--json").out)["plan"]
    assert many["contexts"] == 13
    assert many["fit_seconds"] > plan["fit_seconds"]
    assert many["resident_bytes"] > 2 * plan["resident_bytes"]
    text = here("doctor", "--plan", "3000x20", "--workers", 2).out
    assert "plan        3,000 x 20, 8 members, on 2 workers" in text
    for wrong, why in (("3000", "ROWSxFEATURES"), ("0x3", "ROWSxFEATURES"), ("900000000x900", "doesn't fit")):
        ended = here("doctor", "--plan", wrong, "--workers", 2)
        assert ended.code == 2
        assert why in ended.err


def test_doctor(here: Callable[..., Ended]) -> None:
    ended = here("doctor", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["versions"]["tabicl"]
    assert found["cores"] > 0
    assert found["memory"]["total"] >= found["memory"]["free"] > 0
    assert {device["kind"] for device in found["devices"]} >= {"cpu"}
    assert set(found["checkpoints"]) == {"classification", "regression"}
    told = here("doctor")
    assert "checkpoint  classification" in told.out


def test_memory_is_the_control_groups(tmp_path: Path) -> None:
    """C01: in a container the host's free memory is not ours."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 900 kB\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    (groups / "a" / "b").mkdir(parents=True)
    assert machine.memory(proc, groups) == machine.Memory(1_024_000, 921_600, False)
    (groups / "a" / "memory.max").write_text("512000\n")  # of a group above ours
    (groups / "a" / "memory.current").write_text("112000\n")
    (groups / "a" / "b" / "memory.max").write_text("max\n")
    assert machine.memory(proc, groups) == machine.Memory(512_000, 400_000, True)
    (proc / "self" / "cgroup").write_text("7:memory:/c\n3:cpu,cpuacct:/c\n")
    (groups / "memory" / "c").mkdir(parents=True)
    (groups / "memory" / "c" / "memory.limit_in_bytes").write_text("256000\n")
    (groups / "memory" / "c" / "memory.usage_in_bytes").write_text("56000\n")
    assert machine.memory(proc, groups) == machine.Memory(256_000, 200_000, True)
    assert machine.memory(tmp_path / "nowhere", groups) is None


def test_cores_are_the_control_groups(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.cores(tmp_path, tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cores(tmp_path, tmp_path) >= 1


def test_sizes_and_times_in_words() -> None:
    assert [bytes_text(size) for size in (0, 1023, 1536, 5 << 30, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]
    assert [seconds_text(s) for s in (0.04, 9.96, 89, 150, 5400, 7260)] == [
        "0.0 s",
        "10 s",
        "89 s",
        "2 min",
        "1 h 30 min",
        "2 h 1 min",
    ]
