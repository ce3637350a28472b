"""The target: which task it asks for, its classes, and labels that come back in the type they went in."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.exceptions import DataConversionWarning

from tabgrpc.data.encoding import check_finite
from tabgrpc.data.errors import UserError, counted
from tabgrpc.data.inference import MISSING_TOKENS

Task = Literal["classification", "regression"]
Label = str | int | float | bool
#: A whole-number target with more distinct values than this is a quantity, not a class.
MOST_INTEGER_CLASSES = 20


def labels_of(values: Any, name: str) -> np.ndarray[Any, Any]:
    """Target values as a 1-D NumPy array of bool, numbers, text (`<U`) or objects that are all text.

    values: Arrow column, pandas Series, array-like of (n,) or (n, 1). Nullable, categorical and Decimal values become
    plain ones. Raises `UserError` for missing values (count and first row), infinities, and kinds that are no target.
    """
    array = _plain(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=3)
        array = array.ravel()
    if array.ndim != 1:
        raise UserError(f"y should be a 1d array, got an array of shape {array.shape} instead.")
    missing = np.asarray(pd.isna(array)) | np.ma.getmaskarray(array)
    array = np.ma.getdata(array)
    if missing.any():
        count, row = counted(int(missing.sum()), "missing value"), int(missing.argmax()) + 1
        raise UserError(f"Input y contains NaN: target {name!r} has {count}, the first in row {row}")
    if array.dtype.kind == "O":
        array = _of_objects(array, name)
    if array.dtype.kind == "f":
        infinite = np.isinf(array)
        if infinite.any():
            count, row = counted(int(infinite.sum()), "infinite value"), int(infinite.argmax()) + 1
            raise UserError(f"Input y contains infinity: target {name!r} has {count}, the first in row {row}")
        check_finite(array.astype(np.float64), name, what="target")
    if array.dtype.kind not in "biufUO":
        raise UserError(f"target {name!r} has values of type {array.dtype}: a target is numbers, text or booleans")
    native = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
    return array.astype(native, copy=False)  # what Arrow takes


def _plain(values: Any, name: str) -> np.ndarray[Any, Any]:
    """As NumPy, missing values kept as None or NaN."""
    if isinstance(values, (pa.ChunkedArray, pa.Array)):
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_nested(values.type):
            raise UserError(f"target {name!r} has values of type {values.type}: a target is numbers, text or booleans")
        plain = (
            pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)
        )
        if plain and values.null_count == 0:
            return np.asarray(
                values.to_numpy(**({} if isinstance(values, pa.ChunkedArray) else {"zero_copy_only": False}))
            )
        return np.array(values.to_pylist(), dtype=object)
    if hasattr(values, "tocsr"):
        raise UserError("sparse targets aren't supported: give a dense array")
    if isinstance(values, (pd.Series, pd.Index)) or pd.api.types.is_extension_array_dtype(values):
        series = pd.Series(values)
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc":
            return np.asarray(series.to_numpy())
        if series.isna().any() or not _is_number(series.dtype):
            return np.array(series.astype(object).to_numpy(), dtype=object)
        return np.asarray(series.to_numpy(dtype=_numpy_dtype(series.dtype)))
    array = np.asanyarray(values)  # a mask stays
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray) and any(not isinstance(v, str) for v in values):
        array = np.array(values, dtype=object)  # NumPy makes text of a list of text and numbers
    if array.dtype.kind == "c":
        raise UserError("Complex data not supported: the target is complex")
    return array


def _is_number(dtype: Any) -> bool:
    return bool(
        pd.api.types.is_numeric_dtype(dtype) and isinstance(dtype, pd.api.extensions.ExtensionDtype)
    ) and hasattr(dtype, "numpy_dtype")


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    numpy_dtype: np.dtype[Any] = np.dtype(dtype.numpy_dtype)
    return numpy_dtype


def _of_objects(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Objects by what they are: numbers and booleans as NumPy's own, text as objects."""
    kind = pd.api.types.infer_dtype(array, skipna=False)
    if kind in ("string", "empty"):
        return array
    if kind == "boolean":
        return array.astype(bool)
    if kind == "integer":
        try:
            return np.array([int(value) for value in array], dtype=np.int64)
        except OverflowError:
            raise UserError(f"target {name!r} has whole numbers beyond 64 bits: make them text, or floats") from None
    if kind in ("floating", "mixed-integer-float", "decimal"):
        return np.array([float(value) for value in array], dtype=np.float64)
    raise UserError(
        f"target {name!r} mixes kinds of values or has none that can be a label ({kind}): "
        "make them all text or all numbers"
    )


def task_of(labels: np.ndarray[Any, Any]) -> Task:
    """The task that labels ask for, the rule of `task="auto"`:

    text and booleans: classification. At most two distinct numbers: classification. Whole numbers, however stored,
    with at most 20 distinct values and at least twice as many rows: classification. Any other numbers: regression.
    """
    if labels.dtype.kind not in "iuf":
        return "classification"
    distinct = np.unique(labels)
    if len(distinct) <= 2:
        return "classification"
    whole = labels.dtype.kind in "iu" or bool((distinct == np.floor(distinct)).all())
    return "classification" if whole and len(distinct) <= min(MOST_INTEGER_CLASSES, len(labels) // 2) else "regression"


def check_numbers_in_text(labels: np.ndarray[Any, Any], name: str, task: str) -> None:
    """Raises `UserError` where a target of numbers became text because of a few cells: all of it for regression, and
    for "auto" if its numbers are too many for classes and the rest are words for "missing" or infinity."""
    if labels.dtype.kind not in "OU":
        return
    odd = [row for row, label in enumerate(labels) if not _is_float(label)]
    few = {str(labels[row]) for row in odd} <= {*MISSING_TOKENS, "inf", "-inf", "Infinity"}
    numbers = len(set(labels.tolist())) - len({labels[row] for row in odd})
    if odd and (task == "regression" or (task == "auto" and few and numbers > MOST_INTEGER_CLASSES)):
        hint = "" if task == "regression" else " (--task classification takes it as a class)"
        where = f"row {odd[0] + 1}: {str(labels[odd[0]])!r}"
        raise UserError(
            f"target {name!r} has {counted(len(odd), 'text')} for a number, the first in {where}{hint}"
        )


def _is_float(text: object) -> bool:
    try:
        return bool(np.isfinite(float(str(text))))
    except ValueError:
        return False


def classes_of(labels: np.ndarray[Any, Any]) -> tuple[Label, ...]:
    """The distinct labels in order (numbers and booleans by value, text by code point) as Python values."""
    return tuple(sorted(set(labels.tolist())))


def class_codes(
    labels: np.ndarray[Any, Any], classes: tuple[Label, ...], name: str
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(n,) labels as places among `classes`. Raises `UserError` naming the row of a label that isn't one of them."""
    place = {label: code for code, label in enumerate(classes)}
    try:
        return np.fromiter((place[label] for label in labels.tolist()), np.int64, len(labels))
    except KeyError as error:
        row = labels.tolist().index(error.args[0]) + 1
        raise UserError(f"target {name!r}, row {row}: {error.args[0]!r} isn't one of the model's classes") from None


def dtype_name(labels: np.ndarray[Any, Any]) -> str:
    """The labels' NumPy dtype for storage: "str" for any width of text, "object", or e.g. "int32"."""
    return {"U": "str", "O": "object"}.get(labels.dtype.kind, str(labels.dtype))
