"""Arrays as frames: what goes in comes out, and every kind of damage is an error. Case E03."""

from __future__ import annotations

import os
import pickle
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tabgrpc.internal.v1.shards_pb2 import ArraySpec, Chunk, Commit, Frame, Manifest
from tabgrpc.wire import codec
from tabgrpc.wire.codec import CHUNK_BYTES, CodecError, arrays, frames

DTYPES = ["float16", "float32", "float64", "int16", "int32", "int64", "uint16", "uint8", "bool"]
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
any_array = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes))
any_arrays = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), any_array, max_size=3)


def again(stream: list[Frame]) -> list[Frame]:
    """Over the wire and back."""
    return [Frame.FromString(frame.SerializeToString()) for frame in stream]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@given(sent=any_arrays)
def test_what_goes_in_comes_out(sent):
    """Names, dtypes, shapes and bits (NaN payloads and -0.0 too), no arrays, arrays of no numbers, scalars. Received ones are writable."""
    received = arrays(again(list(frames(sent))))
    assert list(received) == list(sent)
    for name, array in sent.items():
        assert same(received[name], array)
        assert received[name].flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(4, 6).T,
        np.arange(24.0)[::-2],
        np.asfortranarray(np.ones((3, 4), np.float32)),
        np.broadcast_to(np.float32(3), (5, 2)),
    ],
    ids=["transposed", "strided", "fortran", "broadcast"],
)
def test_layouts_are_laid_out_plainly(array):
    received = arrays(again(list(frames({"a": array}))))["a"]
    assert same(received, np.ascontiguousarray(array))


def test_the_other_byte_order_is_turned_round():
    """Catches bytes sent as they lie under a name, "float32", that says nothing of their order."""
    array = np.array([1.0, -2.5], ">f4")
    received = arrays(again(list(frames({"a": array}))))["a"]
    assert (received == array).all()
    assert received.dtype == np.float32


def test_large_arrays_go_in_several_chunks():
    """Messages are capped; two arrays share a chunk's boundary nowhere."""
    sent = {"a": np.arange(CHUNK_BYTES // 4 + 1, dtype=np.float32), "b": np.ones(3, np.uint8), "c": np.arange(5, dtype=np.float64)}
    stream = list(frames(sent))
    assert max(frame.ByteSize() for frame in stream) <= CHUNK_BYTES + 100
    assert len(stream) == 6  # manifest, two chunks of a, one of b, one of c, commit
    received = arrays(again(stream))
    assert all(same(received[name], array) for name, array in sent.items())


SENT = {"a": np.arange(10, dtype=np.float32), "b": np.arange(CHUNK_BYTES // 8 + 5, dtype=np.float64)}


@given(data=st.data())
def test_a_flipped_bit_is_noticed(data):
    """In any byte of any chunk."""
    stream = again(list(frames(SENT)))
    which = data.draw(st.sampled_from([at for at, frame in enumerate(stream) if frame.WhichOneof("part") == "chunk"]))
    damaged = bytearray(stream[which].chunk.data)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    stream[which].chunk.data = bytes(damaged)
    with pytest.raises(CodecError, match="damaged"):
        arrays(stream)


@given(data=st.data())
def test_a_lost_a_repeated_or_a_moved_frame_is_noticed(data):
    """Nothing is handed out of a stream that isn't whole and in order. (A frame after the commit can change nothing.)"""
    stream = list(frames(SENT))
    kind = data.draw(st.sampled_from(["cut", "lost", "repeated", "swapped"]))
    at = data.draw(st.integers(0, len(stream) - 2))
    if kind == "cut":
        stream = stream[:at]
    elif kind == "lost":
        del stream[at]
    elif kind == "repeated":
        stream.insert(at, stream[at])
    else:
        stream[at], stream[at + 1] = stream[at + 1], stream[at]
    with pytest.raises(CodecError):
        arrays(stream)


def manifest(*specs: tuple[str, str, list[int]]) -> Frame:
    return Frame(manifest=Manifest(arrays=[ArraySpec(name=name, dtype=dtype, shape=shape) for name, dtype, shape in specs]))


def chunk(data: bytes, offset: int = 0, checksum: int | None = None) -> Frame:
    return Frame(chunk=Chunk(offset=offset, data=data, checksum=zlib.crc32(data) if checksum is None else checksum))


def commit(size: int) -> Frame:
    return Frame(commit=Commit(size=size))


HUGE = 1 << 62
BAD = {
    "nothing": ([], "starts with its manifest"),
    "an empty frame": ([Frame()], "starts with its manifest"),
    "no manifest": ([chunk(b"1234"), commit(4)], "starts with its manifest"),
    "two manifests": ([manifest(("a", "uint8", [4])), manifest(("a", "uint8", [4])), chunk(b"1234"), commit(4)], "unexpected manifest"),
    "an empty frame within": ([manifest(("a", "uint8", [4])), Frame(), chunk(b"1234"), commit(4)], "unexpected empty frame"),
    "wrong checksum": ([manifest(("a", "uint8", [4])), chunk(b"1234", checksum=1), commit(4)], "checksum differs"),
    "too many bytes": ([manifest(("a", "uint8", [4])), chunk(b"12345"), commit(5)], "chunk at 0 of 5 bytes where 0 of 4"),
    "too few bytes": ([manifest(("a", "uint8", [4])), chunk(b"123"), commit(3)], "announced 4 bytes and committed 3"),
    "a commit of less": ([manifest(("a", "uint8", [4])), chunk(b"1234"), commit(3)], "committed 3 after 4"),
    "a gap": ([manifest(("a", "uint8", [4])), chunk(b"12"), chunk(b"4", 3), commit(4)], "chunk at 3"),
    "a negative size": ([manifest(("a", "uint8", [-4])), commit(0)], "negative size"),
    "two negative sizes": ([manifest(("a", "uint8", [-2, -2])), chunk(b"1234"), commit(4)], "negative size"),
    "an unknown dtype": ([manifest(("a", "float128", [1])), commit(0)], "'float128', which is not sent"),
    "objects": ([manifest(("a", "object", [1])), commit(0)], "'object', which is not sent"),
    "a dtype with fields": ([manifest(("a", "f4,f4", [1])), commit(0)], "not sent"),
    "the same name twice": ([manifest(("a", "uint8", [1]), ("a", "uint8", [1])), chunk(b"12"), commit(2)], "two arrays are named 'a'"),
    "a huge size": ([manifest(("a", "float64", [HUGE])), commit(0)], "too large"),
    "sizes that overflow to nothing": ([manifest(("a", "uint8", [1 << 32, 1 << 32])), commit(0)], "too large"),
    "a huge size beside a size of 0": ([manifest(("a", "uint8", [HUGE, HUGE, 0])), commit(0)], "too large"),
    "many dimensions": ([manifest(("a", "uint8", [1] * 100)), chunk(b"1"), commit(1)], "too large"),
    "arrays that are huge together": ([manifest(*((str(i), "float64", [1 << 36]) for i in range(4))), commit(0)], "more than the limit"),
}


@pytest.mark.parametrize("name", BAD)
def test_every_damage_is_a_codec_error(name):
    """Catches an error of another kind (a worker would answer INTERNAL to its caller's mistake), an allocation, a silent wrong shape."""
    stream, message = BAD[name]
    with pytest.raises(CodecError, match=message):
        arrays(again(stream))


def test_a_size_that_nothing_could_hold_is_refused_or_only_announced():
    """Just under the cap of a stream. Whether the system promises the memory or not, nothing is written and no other error comes."""
    with pytest.raises(CodecError):
        arrays([manifest(("a", "uint8", [codec.MAX_STREAM_BYTES])), commit(0)])
    with pytest.raises(CodecError, match="more than the limit of 100"):
        arrays(frames({"a": np.zeros(101, np.uint8)}), limit=100)


class Hostile:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_e03_pickles_do_nothing(tmp_path):
    """A pickle is bytes like any other, in every field that takes bytes or text."""
    owned = tmp_path / "PWNED"
    data = pickle.dumps(Hostile(str(owned)))
    received = arrays(again([manifest(("a", "uint8", [len(data)])), chunk(data), commit(len(data))]))
    assert received["a"].tobytes() == data
    text = data.decode("latin-1")
    for stream in ([manifest((text, text, [1])), commit(0)], [manifest((text, "object", [1])), chunk(data), commit(len(data))]):
        with pytest.raises(CodecError):
            arrays(again(stream))
    assert not owned.exists()


def test_objects_are_not_sent():
    """Catches pointers that leave the process as if they were numbers."""
    with pytest.raises((TypeError, ValueError)):
        list(frames({"a": np.array([{}], dtype=object)}))
