"""Arrays as one message: what goes in comes out, and every kind of damage is an error."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tabgrpc.internal.v1.shards_pb2 import ArraySpec, Manifest, Parcel
from tabgrpc.wire.channels import MAX_MESSAGE_BYTES
from tabgrpc.wire.codec import PARCEL_BYTES, CodecError, pack, unpack

DTYPES = ["float16", "float32", "float64", "int32", "int64", "uint16", "uint8", "bool"]
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
any_arrays = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes)),
    max_size=3,
)


def again(parcel: Parcel) -> Parcel:
    return Parcel.FromString(parcel.SerializeToString())


@given(sent=any_arrays)
def test_what_goes_in_comes_out(sent):
    """Names in order, dtypes, shapes and bits. Received arrays are writable, and none shares memory with what was sent."""
    received = unpack(again(pack(sent)))
    assert list(received) == list(sent)
    for name, array in sent.items():
        got = received[name]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert got.flags.writeable
        assert not np.shares_memory(got, array)


def test_the_other_byte_order_is_turned_round():
    array = np.array([1.0, -2.5], ">f8")
    assert (unpack(again(pack({"a": array})))["a"] == array).all()


def test_a_parcel_is_never_larger_than_a_message_may_be():
    """Catches a tile that gRPC would refuse with RESOURCE_EXHAUSTED, which means out of memory elsewhere."""
    assert pack({"a": np.zeros(PARCEL_BYTES, np.uint8)}).ByteSize() < MAX_MESSAGE_BYTES
    with pytest.raises(CodecError, match=f"don't fit a parcel of {PARCEL_BYTES}"):
        pack({"a": np.zeros(PARCEL_BYTES, np.uint8), "b": np.zeros(1, np.uint8)})


@given(data=st.data())
def test_a_flipped_bit_is_noticed(data):
    parcel = again(pack({"a": np.arange(10, dtype=np.float32), "b": np.arange(3)}))
    damaged = bytearray(parcel.data)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    parcel.data = bytes(damaged)
    with pytest.raises(CodecError, match="damaged"):
        unpack(parcel)


HUGE = 1 << 62
BAD = {
    "too few bytes": ([("a", "uint8", [5])], b"1234", "announces 5 bytes and has 4"),
    "too many bytes": ([("a", "uint8", [3])], b"1234", "announces 3 bytes and has 4"),
    "bytes of no array": ([], b"1234", "announces 0 bytes and has 4"),
    "a negative size": ([("a", "uint8", [-4])], b"", "negative size"),
    "two negative sizes": ([("a", "uint8", [-2, -2])], b"1234", "negative size"),
    "objects": ([("a", "object", [1])], b"12345678", "not sent"),
    "the same name twice": ([("a", "uint8", [2]), ("a", "uint8", [2])], b"1234", "two arrays are named 'a'"),
    "a huge size": ([("a", "float64", [HUGE])], b"", "too large"),
    "a huge size beside a size of 0": ([("a", "uint8", [0, HUGE, HUGE])], b"", "too large"),
    "sizes that overflow to nothing": ([("a", "uint8", [1 << 32, 1 << 32])], b"", "too large"),
}


@pytest.mark.parametrize("name", BAD)
def test_every_damage_is_a_codec_error(name):
    """Also where the checksum vouches for it. Catches an error of another kind, an allocation, a silent wrong shape."""
    specs, data, message = BAD[name]
    manifest = Manifest(arrays=[ArraySpec(name=each, dtype=dtype, shape=shape) for each, dtype, shape in specs])
    with pytest.raises(CodecError, match=message):
        unpack(again(Parcel(manifest=manifest, data=data, checksum=zlib.crc32(data))))


def test_an_empty_parcel_has_no_arrays():
    """What a missing field looks like: the caller then misses its array by name."""
    assert unpack(Parcel()) == {}
