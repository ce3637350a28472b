"""A user's mistake: exit code 2, one line on stderr that names the file, column or row, and nothing left behind."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Ended, Served, tabgrpc

from tabgrpc.checkpoints import checkpoint

TABLE = "x,z,y\n" + "".join(f"{i},{i % 3},{'ab'[i % 2]}\n" for i in range(20))


def mistake(ended: Ended, *named: str) -> None:
    """Checks the contract."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("error: ")
    for text in named:
        assert text in lines[0]


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.mark.parametrize(
    ("content", "words", "named"),
    [
        pytest.param(None, [], ["t.csv", "no such file"], id="no-such-file"),
        pytest.param(TABLE, ["--drop", "w"], ["t.csv", "'w'", "not found"], id="no-such-column-to-drop"),
        pytest.param("x,y\n1,a\n2,\n3,b\n", [], ["t.csv", "'y'", "1 missing value", "row 2"], id="target-missing"),
        pytest.param("x,y\n1,a\n2,a\n", [], ["t.csv", "'y'", "one class", "'a'"], id="one-class"),
        pytest.param("x,y\n", [], ["t.csv", "no rows"], id="no-rows"),
        pytest.param("", [], ["t.csv", "empty"], id="empty-file"),
        pytest.param("x,y\n1,a\n2,b,\n", [], ["t.csv", "row 2"], id="row-too-long"),
        pytest.param(TABLE, ["--task", "regression"], ["t.csv", "'y'", "row 1", "'a'"], id="text-as-a-quantity"),
        pytest.param(TABLE, ["--checkpoint", "no/such.ckpt"], ["no/such.ckpt"], id="no-such-checkpoint"),
        pytest.param(TABLE, ["--checkpoint", "t.csv"], ["t.csv", "not a checkpoint"], id="not-a-checkpoint"),
        pytest.param(
            TABLE,
            ["--checkpoint", checkpoint.PACKAGED / "mini-regressor.json"],
            ["mini-regressor", "regressor", "classification"],
            id="checkpoint-of-the-wrong-kind",
        ),
    ],
)
def test_fit_refuses(here: Callable[..., Ended], content: str | None, words: list[str], named: list[str]) -> None:
    if content is not None:
        Path("t.csv").write_text(content)
    before = files()
    mistake(here("fit", "t.csv", "--target", "y", "-o", "model", *words), *named)
    assert files() == before


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (".hidden", ["'.hidden'"]),
        ("a b", ["'a b'"]),
        ("no/model", ["no/model", "no folder"]),
        ("t.csv", ["t.csv", "is a file"]),
        ("full", ["full", "other things"]),
    ],
)
def test_fit_refuses_a_place_for_the_model(here: Callable[..., Ended], output: str, named: list[str]) -> None:
    """Nothing of the user's is ever written over."""
    Path("t.csv").write_text(TABLE)
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("years of work")
    before = files()
    mistake(here("fit", "t.csv", "--target", "y", "-o", output), *named)
    assert files() == before


@pytest.mark.parametrize(
    ("content", "words", "named"),
    [
        pytest.param(None, [], ["q.csv", "no such file"], id="no-such-file"),
        pytest.param("age,spend,calls\n1,2,3\n", [], ["q.csv", "'plan'"], id="missing-column"),
        pytest.param("age,spend,calls,plan\n1,2,3,pro\n1,oops,3,pro\n", [], ["'spend'", "row 2", "'oops'"], id="text"),
        pytest.param(
            "age,spend,calls,plan\n1,2,3,pro\n1,inf,3,pro\n", [], ["q.csv", "'spend'", "row 2"], id="infinity"
        ),
        pytest.param("age,spend,calls,plan\n", [], ["q.csv", "no rows"], id="no-rows"),
        pytest.param("age,spend,calls,plan\n1,2,3,pro\n", ["--keep", "idd"], ["q.csv", "'idd'"], id="keep"),
        pytest.param("age,spend,calls,plan\n1,2,3,pro\n", ["--quantiles", "0.5"], ["--quantiles"], id="quantiles"),
        pytest.param("age,spend,calls,plan\n1,2,3,pro\n", ["-o", "o.xls"], ["o.xls", "'.xls'"], id="extension"),
        pytest.param("age,spend,calls,plan\n1,2,3,pro\n", ["-o", "no/o.csv"], ["no/o.csv"], id="no-folder"),
    ],
)
def test_predict_refuses(
    request: pytest.FixtureRequest,
    here: Callable[..., Ended],
    folder: Path,
    fitted: Ended,
    pool: Served,
    content: str | None,
    words: list[str],
    named: list[str],
) -> None:
    """With the schema of a folder, before any worker is started, and with a pool, where the pool is what refuses."""
    if content is not None:
        Path("q.csv").write_text(content)
    before = files()
    if "infinity" not in request.node.callspec.id:  # which only a pool finds
        mistake(here("predict", folder / "model", "q.csv", "-o", "o.csv", *words), *named)
    mistake(here("predict", "churn", "q.csv", "-o", "o.csv", "--pool", pool.address, *words), *named)
    assert files() == before


def test_predict_refuses_what_is_no_model(here: Callable[..., Ended]) -> None:
    Path("q.csv").write_text(TABLE)
    Path("other").mkdir()
    mistake(here("predict", "nothing", "q.csv", "-o", "o.csv"), "nothing", "no such model")
    mistake(here("predict", "other", "q.csv", "-o", "o.csv"), "other", "not a model")
    Path("other/manifest.json").write_text('{"format": 99}')
    mistake(here("predict", "other", "q.csv", "-o", "o.csv"), "99", "format 1")


def test_a_pool_that_is_not_there(here: Callable[..., Ended]) -> None:
    """Exit code 3: the pool's fault, with its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        ended = here("status", "--pool", address, "--timeout", "5")
    assert ended.code == 3
    assert len(ended.err.splitlines()) == 1
    assert address in ended.err


def test_d08_a_port_in_use(pool: Served, tmp_path: Path) -> None:
    """D08: a second server on the port says so, instead of sharing it; port 0 printed the real one."""
    port = pool.address.rpartition(":")[2]
    assert port != "0"
    ended = tabgrpc("serve", "--bind", pool.address, "--store", "other", "--quiet", cwd=tmp_path)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert port in ended.err


def test_a_pool_refuses_unknown_models(here: Callable[..., Ended], pool: Served) -> None:
    mistake(here("models", "rm", "nobody", "--pool", pool.address), "nobody")
    mistake(here("models", "rm", "../up", "--pool", pool.address), "'../up'")
    Path("q.csv").write_text(TABLE)
    mistake(here("predict", "nobody", "q.csv", "-o", "o.csv", "--pool", pool.address), "nobody")
    assert not re.search("Traceback", here("models", "ls", "--pool", pool.address).err)
