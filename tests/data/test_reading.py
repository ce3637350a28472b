"""Reading tables: class (g) of the cases, X4 to X6, and what a damaged or odd file must answer."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from tabgrpc.data import DataWarning, Schema, UserError, check_trainable, csvfile, iter_batches, read_table, write_table

pytestmark = pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning")


@pytest.fixture
def table(tmp_path):
    """Writes bytes or text to a file and gives its path."""

    def write(content: bytes | str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(path, **options) -> str:
    with pytest.raises(UserError) as caught:
        read_table(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_G01_only_the_empty_field_of_a_target_is_missing(table):
    path = table("x,y\n1,NA\n2,EU\n3,None\n4,null\n5,APAC\n6,EU\n7,NA\n8,nan\n")
    read = read_table(path, target="y")
    assert Schema.fit(read, "y").classes == ("APAC", "EU", "NA", "None", "nan", "null")
    path = table("x,y\n1,NA\n2,\n")
    with pytest.raises(UserError, match=r"'y' has 1 missing value, the first in row 2"):
        Schema.fit(read_table(path, target="y"), "y")


def test_G01_features_text_keeps_NA_and_numbers_take_it_as_missing(table):
    path = table("region,size,y\nNA,1.5,0\nEU,NA,1\n,?,1\nNA,3,0\n")
    with pytest.warns(DataWarning, match=r"'\?', 'NA' read as missing in 'size'"):
        read = read_table(path, target="y")
    assert read["region"].to_pylist() == ["NA", "EU", None, "NA"]
    assert read["size"].to_pylist() == [1.5, None, None, 3.0]
    assert read_table(path, missing=("?",))["size"].type == pa.string()  # by option NA is text
    assert read_table(table("a,b\nNA,1\nNA,2\n"))["a"].to_pylist() == ["NA", "NA"]  # a column of NA alone is text


def test_G01_a_regression_target_with_words_in_it_names_the_row(table):
    path = table("x,y\n" + "".join(f"{i},{i / 7}\n" for i in range(30)) + "30,NA\n")
    read = read_table(path, target="y")
    for task in ("auto", "regression"):
        with pytest.raises(UserError, match=r"row 31: 'NA'"):
            Schema.fit(read, "y", task=task)
    assert "NA" in Schema.fit(read, "y", task="classification").classes


@pytest.mark.parametrize("header", ["\ufeffy, x", '\ufeff"y"," x"', "y ,\tx"])
def test_G02_byte_order_mark_and_spaces_leave_the_names(table, header):
    assert read_table(table(f"{header}\n1,2\n0,3\n"), target="y").column_names == ["y", "x"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252"])
def test_G02_another_encoding_is_named_and_can_be_given(table, encoding):
    path = table("café,y\né,1\nb,0\n".encode(encoding))
    assert "--encoding" in refused(path)
    assert read_table(path, encoding=encoding)["café"].to_pylist() == ["é", "b"]
    assert "unknown encoding 'nonsense'" in refused(path, encoding="nonsense")


def test_G02_a_late_wrong_byte_is_an_encoding_error_too(table):
    path = table(b"c,y\n" + b"abc,1\n" * 400_000 + "é,1\n".encode("latin-1"))
    assert "isn't utf-8 text" in refused(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_G03_delimiters_are_found_around_quotes(table, delimiter):
    path = table('c;y\n"a;1\nb";0\n"say ""hi""";1\n'.replace(";", delimiter))
    read = read_table(path, target="y")
    assert read["c"].to_pylist() == [f"a{delimiter}1\nb", 'say "hi"']
    assert read["y"].to_pylist() == [0, 1]


def test_G03_decimal_commas_are_found_or_given(table):
    path = table("x;y\n1,5;0\n2,5;1\n")
    assert read_table(path, target="y")["x"].to_pylist() == [1.5, 2.5]
    assert read_table(path, target="y", delimiter=";", decimal=",")["x"].to_pylist() == [1.5, 2.5]
    quoted = table('x,y\n"1,5",0\n"2,5",1\n')
    assert read_table(quoted)["x"].to_pylist() == ["1,5", "2,5"]  # beside a comma as delimiter it is text, unless told
    assert read_table(quoted, decimal=",")["x"].to_pylist() == [1.5, 2.5]
    assert "decimal mark" in refused(path, decimal=":")


def test_G03_one_column_is_refused(table):
    assert "only one column, 'a'" in refused(table("a\n1\n2\n"))
    assert "only one column" in refused(table("a;b\n1;2\n"), delimiter=",")
    assert "one character" in refused(table("a;b\n1;2\n"), delimiter=";;")


def test_G03_a_model_of_one_feature_predicts_a_file_of_one_column(table):
    schema = Schema.fit(read_table(table("a,y\n1,0\n2,1\n"), target="y"), "y")
    assert read_table(table("a\n5\n6\n"), schema=schema)["a"].to_pylist() == [5.0, 6.0]


def test_G05_a_wrong_target_gets_the_columns_and_the_nearest(table):
    message = refused(table("x,y,species\n1,2,3\n"), target="Species")
    assert "column 'Species' not found (did you mean 'species'?); columns are 'x', 'y', 'species'" in message
    pq.write_table(pa.table({"x": [1], "y": [2]}), table("", "t.parquet"))


def test_G05_nothing_to_read_is_told_in_one_line(table, tmp_path):
    assert "is empty" in refused(table(""))
    assert "is empty" in refused(table("\ufeff\n\n"))
    assert "no rows" in refused(table("x,y\n"))
    assert "no such file" in refused(tmp_path / "none.csv")
    assert "directory" in refused(tmp_path)
    assert "unknown extension '.xlsx'" in refused(table("x", "t.xlsx"))
    assert "parquet" in refused(table("this is no parquet", "t.parquet"))
    assert "arrow" in refused(table("this is no arrow", "t.arrow"))
    assert "quoted field never ends" in refused(table('a,"y\n1,2\n'))


def test_G05_one_class_is_left_to_the_strict_check(table):
    schema = Schema.fit(read_table(table("x,y\n1,a\n2,a\n"), target="y"), "y")
    assert schema.classes == ("a",)
    with pytest.raises(UserError, match="one class, 'a'"):
        check_trainable(schema)


def test_G07_only_an_id_says_why_nothing_is_left(table):
    schema = Schema.fit(read_table(table("id,k,y\nu1,5,0\nu2,5,1\nu3,5,0\n"), target="y"), "y")
    with pytest.raises(UserError, match="'id': another text in every row; 'k': constant"):
        check_trainable(schema)
    with pytest.raises(UserError, match="no column is left to predict from: 'id', 'k' dropped"):
        Schema.fit(read_table(table("id,k,y\nu1,5,0\n"), target="y"), "y", drop=["id", "k"])


def test_G07_only_dates_are_used(table):
    with pytest.warns(DataWarning, match="expanded to year"):
        schema = Schema.fit(read_table(table("d,y\n2024-01-31,0\n2024-02-29,1\n2025-01-01,0\n"), target="y"), "y")
    check_trainable(schema)
    assert schema.encoded_names[0] == "d.year"


@pytest.mark.parametrize("rows", ["1,2,\n3,4,\n", "1,2\n3,4,\n", "1,2\n3\n", "1,2,9\n"])
def test_X4_rows_of_another_length_than_the_header_are_refused(table, rows):
    message = refused(table("a,y\n" + rows))
    assert "the header has 2" in message
    assert "row 1" in message or "row 2" in message


def test_X5_leading_zeros_and_long_ids_stay_text_with_a_warning(table):
    path = table("zip,id,h,n,y\n00501,4611686018427387905,0x1A,9007199254740992,0\n10001,4611686018427387906,0x1B,-1,1\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read = read_table(path, target="y")
    told = " ".join(str(warning.message) for warning in caught)
    assert "leading zeros in 'zip'" in told
    assert "beyond 2^53 in 'id'" in told
    assert read["zip"].to_pylist() == ["00501", "10001"]
    assert read["id"].to_pylist() == ["4611686018427387905", "4611686018427387906"]
    assert read["h"].to_pylist() == ["0x1A", "0x1B"]
    assert read["n"].to_pylist() == [2**53, -1]


def test_X6_duplicate_names_are_refused_in_every_kind_of_file(table, tmp_path):
    assert "duplicate column names: 'a'" in refused(table("a,a ,y\n1,2,3\n"))
    double = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), double.schema) as writer:
        writer.write_table(double)
    assert "duplicate column names: 'a'" in refused(tmp_path / "t.arrow")
    with pytest.raises(UserError, match="duplicate column names"):
        Schema.fit(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), [0, 1])


def test_types_are_those_of_the_whole_column_not_of_its_first_block(table, monkeypatch):
    monkeypatch.setattr(csvfile, "BLOCK_BYTES", 1 << 12)
    path = table("a,b,y\n" + "1,1,0\n" * 20_000 + "abc,1.5,1\n")
    read = read_table(path, target="y")
    assert read["a"].type == pa.string()
    assert read["a"][0].as_py() == "1"
    assert read["b"].type == pa.float64()
    assert read["b"][-1].as_py() == 1.5


def test_kinds_of_csv_columns(table):
    path = table(
        "i,f,b,d,z,e,t,y\n1, 1.5 ,true,2024-01-01,2024-01-01T10:00:00+02:00,,2024-02-31,a\n"
        "+2,inf,FALSE,2024-01-02 10:00:00.5,2024-01-02T10:00:00Z,,x,b\n"
    )
    read = read_table(path, target="y")
    kinds = {name: str(read[name].type) for name in read.column_names}
    assert kinds == {
        "i": "int64",
        "f": "double",
        "b": "bool",
        "d": "timestamp[us]",
        "z": "timestamp[us, tz=UTC]",
        "e": "null",
        "t": "string",
        "y": "string",
    }
    assert read["f"].to_pylist() == [1.5, float("inf")]
    assert read["i"].to_pylist() == [1, 2]


def test_a_later_file_is_read_as_the_models_types(table):
    schema = Schema.fit(read_table(table("zip,n,y\n00501,1,0\n10001,2.5,1\n00501,4,1\n"), target="y"), "y")
    read = read_table(table("n,zip,extra\n7,10001,007\n,10001,1.50\n"), schema=schema)
    assert read["extra"].to_pylist() == ["007", "1.50"]  # verbatim, to be kept in the output
    with pytest.warns(DataWarning, match="'extra'"):
        assert schema.encode(read).tolist() == [[1.0, 7.0], [1.0, 2.5]]
    path = table("n,zip\n" + "1,00501\n" * 99 + "abc,00501\n")
    batches = iter_batches(path, schema=schema, rows=10)
    with pytest.raises(UserError, match=r"t\.csv: column 'n', row 100: 'abc' isn't a number"):
        list(batches)


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".arrow"])
def test_batches_have_the_asked_rows_in_the_files_order(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(csvfile, "BLOCK_BYTES", 1 << 10)
    whole = pa.table({"a": np.arange(1000), "b": [f"t,{i}" for i in range(1000)]})
    path = tmp_path / f"t{kind}"
    write_table(whole, path)
    for rows in (1, 7, 333, 1000, 5000):
        batches = list(iter_batches(path, rows=rows))
        assert all(batch.num_rows == rows for batch in batches[:-1])
        assert pa.Table.from_batches(batches).to_pydict() == whole.to_pydict()
    assert read_table(path).to_pydict() == whole.to_pydict()


def test_standard_input_by_its_first_bytes(monkeypatch, tmp_path):
    whole = pa.table({"a": [1, 2], "b": ["x", "y"]})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, whole.schema) as writer:
        writer.write_table(whole)
    parquet = io.BytesIO()
    pq.write_table(whole, parquet)
    for content in (stream.getvalue(), parquet.getvalue(), b"a,b\n1,x\n2,y\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert read_table("-").to_pydict() == whole.to_pydict()


def test_the_index_of_a_pandas_parquet_is_no_feature(tmp_path):
    pd.DataFrame({"a": [1, 2]}, index=["r", "s"]).to_parquet(tmp_path / "t.parquet")
    with pytest.warns(DataWarning, match="index"):
        assert read_table(tmp_path / "t.parquet").column_names == ["a"]


_cells = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0\r"), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_is_written_as_csv_is_read_back(tmp_path, data):
    rows = data.draw(st.integers(1, 6))
    floats = data.draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=rows, max_size=rows))
    ints = data.draw(st.lists(st.integers(-(2**53), 2**53), min_size=rows, max_size=rows))
    texts = data.draw(st.lists(st.none() | _cells, min_size=rows, max_size=rows))
    texts[0] = "a text"  # so that the column is text, whatever hypothesis writes into the others
    path = tmp_path / "t.csv"
    write_table(pa.table({"f": floats, "i": ints, 't, "q"': texts}), path)
    read = read_table(path)
    assert [float(value).hex() for value in read["f"].to_pylist()] == [value.hex() for value in floats] or all(
        value.is_integer()
        for value in floats  # whole floats of 16 digits and more look like ids
    )
    assert read["i"].to_pylist() == ints
    assert read['t, "q"'].to_pylist() == texts
