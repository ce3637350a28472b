"""The schema: every kind of data to numbers, by name, the same whatever it came in; class (a) of the cases, X6, X7, X9."""

from __future__ import annotations

import datetime
import json
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.impute import SimpleImputer
from tabicl._sklearn.preprocessing import TransformToNumerical

from tabgrpc.data import DataWarning, Schema, UserError, UserTypeError, check_trainable

pytestmark = pytest.mark.filterwarnings("ignore::tabgrpc.data.DataWarning")
N = 40


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, 4))


@pytest.fixture
def y(X):
    return (X[:, 0] > 0).astype(int)


def refused(call, *args, match: str = "", **options) -> None:
    with pytest.raises(UserError, match=match) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(10))
def test_encoding_is_upstreams_on_mixed_tables(seed):
    """Values and order: categories first, then numbers. Means are summed in another order, so 1e-12 of their size."""
    rng = np.random.default_rng(seed)
    makers = [
        lambda: rng.normal(size=N) * 10.0 ** rng.integers(-3, 6),
        lambda: rng.integers(-5, 300, N),
        lambda: pd.array(rng.integers(0, 9, N), dtype="Int64"),
        lambda: pd.array(rng.normal(size=N), dtype="Float64"),
        lambda: pd.array(rng.random(N) > 0.5, dtype="boolean"),
        lambda: pd.Categorical(rng.integers(0, 30, N)),
        lambda: pd.Categorical(rng.choice(list("zyx"), N), categories=list("zxy"), ordered=True),
        lambda: pd.Series(rng.choice(["", "é", "Z", "a", "10", "9"], N)),
        lambda: pd.Series(rng.choice(["u", "v", "w"], N), dtype=object),
    ]
    chosen = [makers[place] for place in rng.integers(0, len(makers), 7)]
    table = pd.DataFrame({f"c{place}": make() for place, make in enumerate([*chosen, makers[0]])})
    for name in table.columns:
        if table[name].dtype.kind not in "iu" and table[name].dtype.name != "str":
            table.loc[rng.random(N) < 0.1, name] = np.nan  # upstream takes None for a category
    later = table.iloc[rng.permutation(N)[:9]].reset_index(drop=True)
    upstream = TransformToNumerical().fit(table)
    schema = Schema.fit(table, np.arange(N) % 2)
    for rows in (table, later):
        np.testing.assert_allclose(schema.encode(rows), upstream.transform(rows), rtol=1e-12, atol=0)


def test_A01_A02_missing_numbers_are_the_mean_in_arrays_and_frames(X, y):
    X[3, 1], X[:, 3] = np.nan, np.nan
    schema = Schema.fit(X, y)
    assert (schema.encode(X) == Schema.fit(pd.DataFrame(X), y).encode(pd.DataFrame(X))).all()
    np.testing.assert_allclose(schema.encode(X), SimpleImputer(keep_empty_features=True).fit_transform(X), rtol=1e-12)
    other = X.copy()
    other[:3, 3] = [1, -7, 1e6]
    assert (schema.encode(other) == schema.encode(X)).all()


def test_A05_constant_features_fit_with_a_warning_and_stop_the_strict_check(y):
    with pytest.warns(DataWarning, match="'0', '1', '2', '3': constant"):
        schema = Schema.fit(np.ones((N, 4)), y)
    refused(check_trainable, schema, match="no column is left to predict from: '0': constant")


@pytest.mark.parametrize("dtype", [object, "string", "category", "str"])
def test_A06_every_missing_value_is_the_same(dtype, y):
    encoded = []
    for missing in (pd.NA, None, np.nan):
        series = pd.Series(["a", "b", missing, "d"] * 10, dtype=dtype)
        frame = pd.DataFrame({"s": series})
        encoded.append(Schema.fit(frame, y).encode(frame)[:, 0].tolist())
    assert encoded[0][:4] == [0.0, 1.0, -1.0, 2.0]
    assert encoded == [encoded[0]] * 3


def test_A07_nullable_and_arrow_types_are_their_plain_equivalents(y):
    plain = pd.DataFrame({"i": np.arange(N, dtype=float), "b": [True, False] * 20, "s": ["x", "y"] * 20}, dtype=object)
    plain["i"] = plain["i"].astype(float)
    plain.loc[0, "i"], plain.loc[1, "b"], plain.loc[2, "s"] = np.nan, None, None
    nullable = plain.convert_dtypes()
    arrow = pa.Table.from_pandas(nullable)
    backed = arrow.to_pandas(types_mapper=pd.ArrowDtype)
    dictionary = arrow.set_column(2, "s", arrow["s"].dictionary_encode())
    schema = Schema.fit(plain, y)
    for table in (plain, nullable, arrow, backed, dictionary, arrow.to_batches()[0]):
        assert Schema.fit(table, y).encode(table).tolist() == schema.encode(plain).tolist() == schema.encode(table).tolist()


def test_A08_booleans_are_used(X, y):
    frame = pd.DataFrame({"a": X[:, 0], "b": y.astype(bool)})
    schema = Schema.fit(frame, y)
    assert (schema.encode(frame) != schema.encode(frame.assign(b=~frame["b"])))[:, 0].all()
    only = pd.DataFrame({"b": y.astype(bool), "c": X[:, 1] > 0})
    assert Schema.fit(only, y).encode(only).tolist() == only.astype(float).to_numpy().tolist()
    assert Schema.fit(only, y).encode(only.astype(int)).tolist() == only.astype(float).to_numpy().tolist()
    text = only.map(lambda value: str(value).upper())
    assert Schema.fit(only, y).encode(text).tolist() == only.astype(float).to_numpy().tolist()
    refused(Schema.fit(only, y).encode, only.assign(b="yes"), match="column 'b', row 1: 'yes' isn't true or false")


def test_A10_columns_are_found_by_name(X, y):
    for names in (list("abcd"), range(4)):
        frame = pd.DataFrame(X, columns=names)
        schema = Schema.fit(frame, y)
        assert (schema.encode(frame[list(names)[::-1]]) == schema.encode(frame)).all()
        assert (schema.encode(X) == schema.encode(frame)).all()  # an array goes by place
    refused(schema.encode, X[:, :3], match="X has 3 features, but the model is expecting 4 features as input")


def test_A11_missing_columns_are_listed_and_others_ignored(X, y):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, dull=0)
    schema = Schema.fit(frame, "y", drop=["dull"])
    refused(schema.encode, frame[["a", "c"]], match="2 columns of the model missing in the table: 'b', 'd'")
    with pytest.warns(DataWarning, match="ignored: 'e'"):
        encoded = schema.encode(frame.assign(e=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (encoded == schema.encode(frame)).all()  # the target's and the dropped column are known: no warning
        assert (encoded == schema.encode(frame[list("abcd")])).all()
    refused(Schema.fit, frame, "y", drop=["nope"], match="column to drop 'nope' not found")
    refused(Schema.fit, frame, "Y", match="did you mean 'y'")


def test_A13_names_stay_in_the_users_order(X, y):
    frame = pd.DataFrame({"num": X[:, 0], "cat": ["u", "v"] * 20, "num2": X[:, 1]})
    schema = Schema.fit(frame, y)
    assert schema.feature_names == ("num", "cat", "num2")
    assert schema.encoded_sources == schema.encoded_names == ("cat", "num", "num2")


def test_A14_half_floats_are_their_values(X, y):
    half = (X * 6e4 / abs(X).max()).astype(np.float16)
    half[0, 0] = np.nan
    single = half.astype(np.float32)
    assert (Schema.fit(half, y).encode(half) == Schema.fit(single, y).encode(single)).all()


def test_A15_infinities_are_refused_by_name_and_a_row_never_changes_others(X, y):
    schema = Schema.fit(pd.DataFrame(X, columns=list("abcd")), y)
    later = pd.DataFrame(X[:5], columns=list("abcd"))
    later.loc[2, "b"] = np.inf
    later.loc[4, "b"] = -np.inf
    message = r"column 'b' has 2 values that are infinity or beyond 1e\+150, the first in row 3"
    refused(schema.encode, later, match=message)
    refused(Schema.fit, later, y[:5], match=message)
    refused(schema.encode, later, first_row=101, match="the first in row 103")
    mixed = pd.DataFrame(X, columns=list("abcd"))
    mixed.iloc[3] = np.nan
    mixed.iloc[4] = 1e30
    whole = schema.encode(mixed)
    assert (np.concatenate([schema.encode(mixed[row : row + 1]) for row in range(N)]) == whole).all()


def test_A16_one_row_and_one_class(X):
    schema = Schema.fit(X[:1], np.array(["only"]))
    assert schema.classes == ("only",)
    assert schema.encode_target(["only"]).tolist() == [0]
    assert schema.decode([0, 0]).tolist() == ["only", "only"]
    refused(check_trainable, schema, match="one class, 'only'")


def test_A18_no_rows_encode_to_no_rows(X, y):
    frame = pd.DataFrame(X).assign(s="a", d=pd.Timestamp("2024-01-01"))
    frame.columns = frame.columns.astype(str)
    assert Schema.fit(frame, y).encode(frame[:0]).shape == (0, 13)
    refused(Schema.fit, frame[:0], y[:0], match="no rows")


def test_A21_missing_and_infinite_targets_are_refused_with_count_and_row(X, y):
    floats = y.astype(float)
    floats[[0, 5]] = np.nan
    texts = np.where(y, "p", "n").astype(object)
    texts[3] = None
    refused(Schema.fit, X, floats, match="Input y contains NaN: target 'y' has 2 missing values, the first in row 1")
    refused(Schema.fit, X, texts, match="1 missing value, the first in row 4")
    refused(Schema.fit, X, pd.array(texts, dtype="string"), match="1 missing value, the first in row 4")
    refused(Schema.fit, X, pd.Categorical(texts), match="1 missing value, the first in row 4")
    refused(Schema.fit, X, pa.array(texts.tolist()), match="1 missing value, the first in row 4")
    refused(Schema.fit, X, np.r_[np.inf, X[1:, 0]], match="Input y contains infinity: .* the first in row 1")
    refused(Schema.fit, X, y[:-1], match="inconsistent numbers of samples")
    refused(Schema.fit, X, [1, "a"] * 20, match="mixes kinds")


def test_A23_sparse_data_is_a_type_error_at_fit_and_at_predict(X, y):
    sparse = scipy.sparse.csr_matrix(X)
    with pytest.raises(TypeError, match="toarray"):
        Schema.fit(sparse, y)
    with pytest.raises(TypeError, match="toarray"):
        Schema.fit(X, y).encode(sparse)
    with pytest.raises(TypeError, match="column 'a' is sparse"):
        Schema.fit(pd.DataFrame({"a": pd.arrays.SparseArray(X[:, 0])}), y)


def test_X5_whole_numbers_that_floats_would_merge_become_ids(y):
    ids = 2**62 + np.arange(N)
    frame = pd.DataFrame({"id": ids, "n": np.arange(N)})
    with pytest.warns(DataWarning, match="'id': whole numbers beyond 2.53 kept as ids"):
        schema = Schema.fit(frame, y)
    assert schema.encode(frame)[:, 0].tolist() == list(range(N))
    assert schema.encode(frame.astype({"id": object}))[:, 0].tolist() == list(range(N))


def test_X6_names_that_clash_or_mix(y):
    refused(Schema.fit, pd.DataFrame(np.ones((N, 2)), columns=["a", "a"]), y, match="duplicate column names: 'a'")
    with pytest.raises(TypeError, match="all text or all numbers"):
        Schema.fit(pd.DataFrame(np.ones((N, 2)), columns=["a", 1]), y)


def test_X7_decimals_are_numbers(y):
    decimals = pd.DataFrame({"d": [Decimal(i) / 7 for i in range(N)]})
    floats = decimals.astype(float)
    with pytest.warns(DataWarning, match="'d': decimals read as float64"):
        schema = Schema.fit(decimals, y)
    assert schema.encode(decimals).tolist() == floats.to_numpy().tolist()
    assert schema.encode(pa.Table.from_pandas(decimals)).tolist() == floats.to_numpy().tolist()
    text = np.array([["1.5", "2"], ["3", "4e1"]])
    assert Schema.fit(text, [0, 1]).encode(text).tolist() == [[1.5, 2.0], [3.0, 40.0]]


def test_X9_arrays_of_every_make(X, y):
    schema = Schema.fit(X, y)
    fixed = X.copy()
    fixed.setflags(write=False)
    torch = pytest.importorskip("torch")
    for same in (X.tolist(), fixed, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], torch.tensor(X), X.astype(object)):
        assert (schema.encode(same) == X).all()
    refused(Schema.fit, X + 1j, y, match="Complex data not supported")
    refused(Schema.fit, np.array([["a", "b"]] * N), y, match="must hold numbers")
    refused(Schema.fit, X[0], y, match="Reshape your data")
    with pytest.raises(TypeError, match="must hold numbers"):
        Schema.fit(np.array([[{}], [1]], dtype=object), [0, 1])
    with pytest.raises(UserTypeError, match="column 'a', row 1: argument must be a string or a number, not dict"):
        Schema.fit(pd.DataFrame({"a": [{}] * N}), y)
    refused(Schema.fit, pa.table({"a": [[1]] * N}), y, match="column 'a' has values of type list")


def test_dates_become_their_parts_the_same_from_any_source(y):
    moments = pd.date_range("1969-12-30 23:59:59", periods=N, freq="17h").to_series(index=range(N))
    moments[5] = pd.NaT
    frame = pd.DataFrame({"d": moments, "t": moments - moments[0]})
    schema = Schema.fit(frame, y)
    encoded = schema.encode(frame)
    expected = [moments.dt.year, moments.dt.month, moments.dt.day, moments.dt.day_of_week, moments.dt.hour, moments.dt.minute]
    for place, part in enumerate(expected):
        assert encoded[:, place].tolist() == part.fillna(part.mean()).tolist()
    seconds = (moments - pd.Timestamp(0)).dt.total_seconds()
    np.testing.assert_allclose(encoded[:, 7], seconds.fillna(seconds.mean()), rtol=1e-15)
    durations = frame["t"].dt.total_seconds()
    np.testing.assert_allclose(encoded[:, 8], durations.fillna(durations.mean()), rtol=1e-15)
    arrow = pa.Table.from_pandas(frame)
    zoned = frame.assign(d=frame["d"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    text = frame.assign(d=moments.dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    for same in (arrow, frame.astype(object), zoned, text, frame.astype({"d": "datetime64[s]", "t": "timedelta64[s]"})):
        assert (schema.encode(same) == encoded).all()
    days = pd.DataFrame({"d": [datetime.date(2024, 2, 29), None] * 20, "t": [datetime.time(1, 2, 3), None] * 20})
    parts = Schema.fit(days, y).encode(days)[0].tolist()
    assert parts == [2024, 2, 29, 3, 0, 0, 0, 1709164800.0, 3723.0]
    refused(schema.encode, frame.assign(d=1.0), match="column 'd' holds numbers, the model was fitted on dates or times")
    refused(schema.encode, frame.assign(d="soon"), match="column 'd', row 1: 'soon' isn't an ISO date")


def test_text_among_numbers_names_column_and_row(X, y):
    schema = Schema.fit(pd.DataFrame(X, columns=list("abcd")), y)
    later = pd.DataFrame(X, columns=list("abcd")).astype({"b": str})
    assert (schema.encode(later) == X).all()
    later.loc[7, "b"] = "NA"  # missing, as in a file
    assert schema.encode(later)[7, 1] == schema.columns[1].fill
    later.loc[8, "b"] = "abc"
    refused(schema.encode, later, match="column 'b', row 9: 'abc' isn't a number")


def test_unseen_and_mixed_categories(y):
    frame = pd.DataFrame({"s": pd.Series(["b", "a"] * 20), "k": pd.Categorical([10, 9] * 20), "m": [1, "x"] * 20})
    schema = Schema.fit(frame, y)
    assert [column.categories for column in schema.columns] == [("a", "b"), ("9", "10"), ("1", "x")]
    later = pd.DataFrame({"s": ["new", None], "k": ["10", "11"], "m": ["1", 1.0]})
    assert schema.encode(later).tolist() == [[-1, 1, 0], [-1, -1, 0]]


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["a", "b"] * 20, "classification", ("a", "b")),
        ([True, False] * 20, "classification", (False, True)),
        ([0.3, 0.7] * 20, "classification", (0.3, 0.7)),
        ([1, 2, 3, 4] * 10, "classification", (1, 2, 3, 4)),
        ([1.0, 2.0, 3.0, 4.0] * 10, "classification", (1.0, 2.0, 3.0, 4.0)),
        ([0.5, 1.0, 1.5, 2.0] * 10, "regression", ()),
        (list(range(20)) * 2, "classification", tuple(range(20))),
        ([*range(21), *range(19)], "regression", ()),
        (list(range(N)), "regression", ()),
        (pd.Categorical([3, 1] * 20), "classification", (1, 3)),
        ([Decimal("1.5"), Decimal("2.5")] * 20, "classification", (1.5, 2.5)),
    ],
)
def test_the_task_that_a_target_asks_for(X, values, task, classes):
    schema = Schema.fit(X, values)
    assert (schema.task, schema.classes) == (task, classes)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([3, 1] * 20, np.int16), "int16"),
        (np.array([3, 1] * 20, np.uint64), "uint64"),
        (np.array([0.5, 1] * 20, np.float32), "float32"),
        (np.array([True, False] * 20), "bool"),
        (np.array(["no", "yes"] * 20), "<U3"),
        (np.array(["no", "yes"] * 20, object), "object"),
        (pd.Series([3, 1] * 20, dtype="Int64"), "int64"),
        (pd.Series([True, False] * 20, dtype="boolean"), "bool"),
        (pd.Series(["no", "yes"] * 20, dtype="string"), "object"),
        (pd.Series(["no", "yes"] * 20, dtype="category"), "object"),
        (pa.array([3, 1] * 20, pa.int8()), "int8"),
        (pa.array(["no", "yes"] * 20), "object"),
        (pa.array(["no", "yes"] * 20).dictionary_encode(), "object"),
        (pa.array([True, False] * 20), "bool"),
    ],
)
def test_labels_come_back_in_their_type_also_through_json(X, values, dtype):
    schema = Schema.from_json(Schema.fit(X, values, task="classification").to_json())
    labels = schema.decode(schema.encode_target(values))
    assert labels.dtype == dtype
    assert labels.tolist() == pd.Series(values.to_pylist() if isinstance(values, pa.Array) else values).tolist()


def test_regression_targets_and_unknown_labels(X, y):
    schema = Schema.fit(X, y, task="regression")
    assert schema.encode_target(y).tolist() == y.tolist()
    assert schema.encode_target(y).dtype == np.float64
    refused(Schema.fit, X, ["a", "b"] * 20, task="regression", match="row 1: 'a'")
    refused(Schema.fit, X, y, task="ranking", match="task must be auto")
    refused(Schema.fit(X, y).encode_target, [0, 1, 7], match="row 3: 7 isn't one of the model's classes")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(t=y)
    assert Schema.fit(frame, "t").encode_target(frame).tolist() == y.tolist()


def test_json_is_plain_and_exact(X):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(s=["é", None] * 20, d=pd.Timestamp("2024-01-01"), b=True, e=None)
    schema = Schema.fit(frame, np.array([0.1, 1 / 3] * 20), drop=["a"])
    text = schema.to_json()
    assert json.loads(text)["task"] == "classification"
    assert Schema.from_json(text) == schema
    assert (Schema.from_json(text).encode(frame) == schema.encode(frame)).all()
    for wrong in ("{}", "[]", "nothing"):
        with pytest.raises(ValueError):
            Schema.from_json(wrong)
