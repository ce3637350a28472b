"""Writing tables: whole or not at all, and the plain CSV that a user's other tools read."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from tabgrpc.data import TableWriter, UserError, read_table, write_table


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".arrow"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, kind):
    path = tmp_path / f"out{kind}"
    write_table(pa.table({"a": [1], "b": ["old"]}), path)
    before = path.read_bytes()

    def fail_halfway() -> None:
        with TableWriter(path) as writer:
            writer.write(pa.table({"a": [2], "b": ["new"]}))
            assert path.read_bytes() == before
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail_halfway()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_batches_are_appended_in_their_order(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.write(pa.record_batch({"prediction": ["a", "b"], "proba_a": [0.1, 1 / 3]}))
        writer.write(pa.record_batch({"prediction": ['say "x",\n', None], "proba_a": [1e-300, 1.0]}))
    assert (tmp_path / "out.csv").read_text() == ('prediction,proba_a\na,0.1\nb,0.3333333333333333\n"say ""x"",\n",1e-300\n,1\n')


def test_no_rows_still_make_a_file_with_a_header(tmp_path):
    with TableWriter(tmp_path / "out.csv", schema=pa.schema({"prediction": pa.string()})):
        pass
    assert (tmp_path / "out.csv").read_text() == "prediction\n"


def test_standard_output_is_csv(capfdbinary):
    write_table(pa.table({"a": [1, 2]}), "-")
    assert capfdbinary.readouterr().out == b"a\n1\n2\n"


def test_a_link_stays_a_link_and_a_device_is_written_to(tmp_path):
    write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "real.csv")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_table(pa.table({"a": [3], "b": [4]}), tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert read_table(tmp_path / "real.csv")["a"].to_pylist() == [3]


def test_where_it_cant_be_written_is_a_user_error(tmp_path):
    for path in (tmp_path / "no" / "out.csv", tmp_path, tmp_path / "out.xlsx"):
        with pytest.raises(UserError):
            write_table(pa.table({"a": [1]}), path)
    assert os.listdir(tmp_path) == []


def test_the_mode_is_the_users_umask(tmp_path):
    old = os.umask(0o022)
    try:
        write_table(pa.table({"a": [1]}), tmp_path / "out.csv")
    finally:
        os.umask(old)
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == 0o644
