"""The numeric policy: equal digests mean equal bits, and what differs is named."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace

import pytest

from tabgrpc.core.policy import DTYPES, NumericPolicy

POLICY = NumericPolicy("float32", "cpu", "x86_64 AVX512", "eager", (("numpy", "2.4.0"), ("torch", "2.13.0")), "0123456789abcdef")
OTHER = {
    "dtype": "float64",
    "device": "cuda",
    "hardware": "x86_64 AVX2",
    "recipe": "compiled",
    "libraries": (("numpy", "2.4.0"), ("torch", "2.13.1")),
    "canary": "fedcba9876543210",
}


def test_equal_policies_have_equal_digests_in_every_process():
    """The digest is stored with models. Catches one that hashes an id, a set's order or PYTHONHASHSEED."""
    assert POLICY.digest() == replace(POLICY).digest() == NumericPolicy(**asdict(POLICY)).digest()
    assert len(POLICY.digest()) == 16
    assert int(POLICY.digest(), 16) >= 0
    assert POLICY.differences(replace(POLICY)) == []


@pytest.mark.parametrize("name", OTHER)
def test_every_field_counts_and_is_named(name):
    """Catches a field that the digest or the comparison forgets."""
    assert set(OTHER) == {field.name for field in fields(NumericPolicy)}
    other = replace(POLICY, **{name: OTHER[name]})
    assert other.digest() != POLICY.digest()
    (difference,) = POLICY.differences(other)
    assert difference.startswith(f"{name}: ")
    assert " != " in difference


@pytest.mark.parametrize("libraries", [[["numpy", "2.4.0"], ["torch", "2.13.0"]], [["torch", "2.13.0"], ["numpy", "2.4.0"]]])
def test_json_and_back(libraries):
    """Catches lists for tuples, which would make an equal policy differ."""
    values = {**json.loads(json.dumps(asdict(POLICY))), "libraries": libraries}
    back = NumericPolicy.from_dict(values)
    assert back == POLICY
    assert back.digest() == POLICY.digest()


@pytest.mark.parametrize("dtype", ["float8", "", "FLOAT32"])
def test_another_dtype_is_refused_by_name(dtype):
    with pytest.raises(ValueError, match=f"'{dtype}' is none of {', '.join(DTYPES)}"):
        replace(POLICY, dtype=dtype)
