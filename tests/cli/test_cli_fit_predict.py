"""fit and predict as a user types them: files in, files out, and class (g) of the cases from end to end."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import Ended, Served, customers, environment, tabgrpc, write_csv

from tabgrpc.cli.pools import model_place
from tabgrpc.cli.predict import Asked, opened, stored_schema
from tabgrpc.cli.progress import Reporter
from tabgrpc.client import Client


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_fit_tells_what_it_costs(fitted: Ended, folder: Path) -> None:
    """Rows, features, members, bytes, seconds, tier, checkpoint, class counts; JSON on stdout, the rest on stderr."""
    told = json.loads(fitted.out)
    assert (told["rows"], told["features"], told["members"]) == (120, 4, 2)
    assert told["task"] == "classification"
    assert sum(told["classes"].values()) == 120
    assert told["checkpoint"].startswith("mini ")
    assert told["resident_bytes"] > 0
    assert told["estimated_seconds"] > 0
    assert told["tier"] == "memory"
    assert told["model"] == "model"
    for word in ("120 rows", "4 features", "2 members", "stays", "leaves", "mini", "in memory"):
        assert word in fitted.err
    assert (folder / "model" / "manifest.json").is_file()


def test_predict_with_a_local_pool(
    fitted: Ended, folder: Path, pool: Served, tmp_path: Path, here: Callable[..., Ended]
) -> None:
    """Row order, probabilities, kept columns; the target in the table and the number of workers change nothing."""
    out = tmp_path / "o.csv"
    ended = tabgrpc(
        "predict",
        "model",
        "new.csv",
        "-o",
        out,
        "--proba",
        "--keep",
        "id",
        "--keep",
        "churn",
        "--workers",
        1,
        cwd=folder,
    )
    assert ended.code == 0, ended.err
    assert ended.out == ""
    answers, asked = rows_of(out), rows_of(folder / "new.csv")
    assert list(answers[0]) == ["id", "churn", "prediction", "proba_leaves", "proba_stays"]
    assert [row["id"] for row in answers] == [row["id"] for row in asked]
    for row in answers:
        assert float(row["proba_leaves"]) + float(row["proba_stays"]) == pytest.approx(1, abs=1e-6)
        assert row["prediction"] == max(("leaves", "stays"), key=lambda label: float(row[f"proba_{label}"]))
    header, rows = customers(50, seed=2)
    other = {"stays": "leaves", "leaves": "stays"}
    turned = [[*row[:-1], other[str(row[-1])]] for row in rows]
    write_csv(tmp_path / "turned.csv", header, turned)
    again = here("predict", "churn", "turned.csv", "-o", "-", "--proba", "--quiet", "--pool", pool.address)
    assert (again.code, again.err) == (0, "")
    names = ["prediction", "proba_leaves", "proba_stays"]
    wanted = [{name: row[name] for name in names} for row in answers]
    assert list(csv.DictReader(io.StringIO(again.out))) == wanted


def test_a_model_of_another_policy(fitted: Ended, folder: Path, tmp_path: Path) -> None:
    """Fitted with other libraries: predict says that bits differ, once; --strict-bits refuses."""
    shutil.copytree(folder / "model", tmp_path / "old")
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    manifest["policy"]["hardware"] = "another processor"
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    asked = ["predict", "old", folder / "new.csv", "-o", "o.csv", "--workers", 1]
    ended = tabgrpc(*asked, cwd=tmp_path)
    assert ended.code == 0
    assert [line for line in ended.err.splitlines() if line.startswith("warning: ") and "bits differ" in line]
    (tmp_path / "o.csv").unlink()
    ended = tabgrpc(*asked, "--strict-bits", cwd=tmp_path)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert "another processor" in ended.err
    assert not (tmp_path / "o.csv").exists()


def test_dry_run_stops_there(here: Callable[..., Ended], folder: Path, pool: Served) -> None:
    ended = here("fit", folder / "train.csv", "--target", "churn", "-o", "dry", "--dry-run", "--pool", pool.address)
    assert ended.code == 0
    assert "120 rows" in ended.err
    assert re.search(r"on 2 workers, divided by (members|rows): .* s of compute on the busiest of 2, .* so [\d.]+ s", ended.err)
    assert re.search(r"a worker for good in memory, .* at the peak, about .*; a predict of 256 rows about", ended.err)
    assert ended.out == ""
    assert not Path("dry").exists()
    assert '"dry"' not in here("models", "ls", "--json", "--pool", pool.address).out


def test_regression_in_a_pool(here: Callable[..., Ended], pool: Served) -> None:
    """Quantiles in order, parquet out, the model listed and removed."""
    write_csv(Path("t.csv"), ["x", "z", "price"], [[i / 7, i % 5, i / 3 + i % 5] for i in range(60)])
    fit = here(
        "fit",
        "t.csv",
        "--target",
        "price",
        "-o",
        "price",
        "--n-estimators",
        1,
        "--checkpoint",
        "mini",
        "--pool",
        pool.address,
        "--quiet",
    )
    assert (fit.code, fit.err) == (0, "")
    ended = here(
        "predict",
        "price",
        "t.csv",
        "-o",
        "o.parquet",
        "--quantiles",
        "0.1,0.5,0.9",
        "--keep",
        "z",
        "--pool",
        pool.address,
    )
    assert ended.code == 0, ended.err
    answers = pq.read_table("o.parquet")
    assert answers.column_names == ["z", "prediction", "q0.1", "q0.5", "q0.9"]
    assert answers.num_rows == 60
    low, high = answers["q0.1"].to_numpy(), answers["q0.9"].to_numpy()
    assert (low <= high).all()
    assert "--proba" in here("predict", "price", "t.csv", "-o", "o.csv", "--proba", "--pool", pool.address).err
    listed = json.loads(here("models", "ls", "--json", "--pool", pool.address).out)
    assert any("price" in model["name"] for model in listed["models"])
    assert here("models", "rm", "price", "--pool", pool.address).code == 0
    listed = json.loads(here("models", "ls", "--json", "--pool", pool.address).out)
    assert not any("price" in model["name"] for model in listed["models"])


def test_standard_input_and_output(
    folder: Path, pool: Served, here: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cat t.csv | tabgrpc fit - ...`, and predictions through a pipe."""
    options = ["--target", "churn", "--n-estimators", 1, "--checkpoint", "mini", "--pool", pool.address, "--quiet"]
    with (folder / "train.csv").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert here("fit", "-", *options, "-o", "piped").code == 0
    new = (folder / "new.csv").read_bytes()
    ended = tabgrpc("predict", "piped", "-", "-o", "-", "--pool", pool.address, cwd=folder, stdin=new)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "prediction"
    assert len(ended.out.splitlines()) == 51


def fit_case(pool: Served, folder: Path, content: bytes) -> dict[str, int]:
    """Fits the bytes of a CSV file, target y, in a process of its own: the model `case`; its class counts."""
    (folder / "case.csv").write_bytes(content)
    options = ["--target", "y", "-o", "case", "--n-estimators", 1, "--checkpoint", "mini", "--pool", pool.address]
    ended = tabgrpc("fit", "case.csv", *options, "--json", cwd=folder)
    assert ended.code == 0, ended.err
    classes: dict[str, int] = json.loads(ended.out)["classes"]
    return classes


def predict_case(pool: Served, here: Callable[..., Ended], table: str = "case.csv") -> list[dict[str, str]]:
    ended = here("predict", "case", table, "-o", "o.csv", "--proba", "--pool", pool.address)
    assert ended.code == 0, ended.err
    return rows_of(Path("o.csv"))


def test_g01_text_that_looks_missing(pool: Served, tmp_path: Path, here: Callable[..., Ended]) -> None:
    """G01: NA, None and null are labels like any other; the summary counts them."""
    content = b"x,y\n1,NA\n2,EU\n3,None\n4,null\n5,APAC\n6,EU\n7,NA\n"
    classes = fit_case(pool, tmp_path, content)
    assert classes == {"APAC": 1, "EU": 2, "NA": 2, "None": 1, "null": 1}
    predictions = [row["prediction"] for row in predict_case(pool, here)]
    assert len(predictions) == 7
    assert set(predictions) <= set(classes)


def test_g02_byte_order_mark_and_spaces(pool: Served, tmp_path: Path, here: Callable[..., Ended]) -> None:
    """G02: Excel's mark before the target's name; other encodings name the option that reads them."""
    classes = fit_case(pool, tmp_path, b"\xef\xbb\xbfy, x\n1,2\n0,3\n1,4\n")
    assert classes == {"0": 1, "1": 2}
    text = "y,x\ncaf\u00e9,1\nth\u00e9,2\n"
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "e.csv").write_bytes(text.encode(encoding))
        ended = here("fit", "e.csv", "--target", "y", "-o", "m")
        assert ended.code == 2
        assert len(ended.err.splitlines()) == 1
        assert "encoding" in ended.err
    ended = here(
        "fit", "e.csv", "--target", "y", "-o", "m", "--encoding", "utf-16", "--dry-run", "--pool", pool.address
    )
    assert ended.code == 0
    assert "caf\u00e9 1" in ended.err


def test_g03_quotes_and_decimal_commas(pool: Served, folder: Path, tmp_path: Path, here: Callable[..., Ended]) -> None:
    """G03: quoted delimiters and newlines are text; `1,5` between semicolons is a number, at fit and at predict."""
    assert fit_case(pool, tmp_path, b'c;y\n"a;1\nb";0\n"say ""hi""";1\n"a;1\nb";0\n') == {"0": 2, "1": 1}
    assert len(predict_case(pool, here)) == 3
    points = "x,z,y\n" + "".join(f"{i}.5,{i % 3},{i % 2}\n" for i in range(12))
    fit_case(pool, tmp_path, points.encode())
    expected = predict_case(pool, here)
    Path("commas.csv").write_text(points.replace(",", ";").replace(".", ","))
    model = stored_schema(model_place(str(folder / "store" / "case"), None))
    asked = Asked("case", "commas.csv", "-")
    commas = pa.Table.from_batches(opened(asked, model, Reporter(quiet=True)))
    with Client(pool.address) as client:
        answers = client.predict("case", commas)
    assert [float(row["proba_1"]) for row in expected] == answers["proba_1"].to_pylist()


def test_g05_wrong_target(tmp_path: Path) -> None:
    """G05: one line with the nearest name, exit code 2, no pool contacted (this one would hang)."""
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        ended = tabgrpc("fit", "t.csv", "--target", "Y", "-o", "m", "--pool", address, cwd=tmp_path)
    assert ended.code == 2
    assert ended.err == "error: t.csv: column 'Y' not found (did you mean 'y'?); columns are 'x', 'y'\n"


def test_g07_nothing_to_predict_from(tmp_path: Path) -> None:
    """G07: which columns are of no use, and why."""
    (tmp_path / "t.csv").write_text("id,y\nu1,0\nu2,1\nu3,0\n")
    ended = tabgrpc("fit", "t.csv", "--target", "y", "-o", "m", cwd=tmp_path)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert "'id'" in ended.err
    assert "another text in every row" in ended.err


@pytest.mark.parametrize("how", ["offline", "deaf hub"])
def test_auto_falls_back_to_mini(how: str, tmp_path: Path) -> None:
    """Without a cache or a hub that answers: `mini`, one warning, soon. In a process that reads the settings anew."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        hub = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        code = "import time, sys\nfrom tabgrpc.checkpoints.resolve import resolve\nimport huggingface_hub\n"
        code += "began = time.monotonic()\nfound, warning = resolve('auto', 'regression')\n"
        code += "print(found.name, warning, time.monotonic() - began < 10, sep='|')"
        where = environment(HF_HOME=str(tmp_path), HF_ENDPOINT=hub, HF_HUB_OFFLINE="1" if how == "offline" else "0")
        done = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True, timeout=120)
    name, warning, soon = done.stdout.strip().split("|")
    assert name == "mini"
    assert ("HF_HUB_OFFLINE" in warning) == (how == "offline")
    assert "using mini" in warning
    assert soon == "True"


def test_rows_are_numbered_over_the_whole_table(here: Callable[..., Ended], pool: Served) -> None:
    """What the pool refuses in a late request is named by its row in the file; OUT isn't left half-written."""
    rows: list[list[object]] = [[20, 1, 2, "pro"] for _ in range(5000)]
    rows[4321][1] = "inf"
    write_csv(Path("long.csv"), ["age", "spend", "calls", "plan"], rows)
    ended = here("predict", "churn", "long.csv", "-o", "o.csv", "--pool", pool.address)
    assert ended.code == 2
    assert "'spend'" in ended.err
    assert ended.err.rstrip().endswith("row 4322")
    assert sorted(path.name for path in Path().iterdir()) == ["long.csv"]
