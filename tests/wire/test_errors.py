"""Errors over a real socket: reasons and codes survive, texts of the unexpected don't leave the process. Case E03's codes."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf import any_pb2, empty_pb2
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from tabgrpc.wire import errors
from tabgrpc.wire.channels import CLIENT_OPTIONS, SERVER_OPTIONS, bind, connect

CLASSES = [
    errors.InvalidArgument,
    errors.NotFound,
    errors.AlreadyExists,
    errors.NotReady,
    errors.StaleEpoch,
    errors.OutOfMemory,
    errors.QueueFull,
    errors.Unavailable,
    errors.Cancelled,
    errors.DeadlineExceeded,
    errors.InternalError,
]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(which=st.sampled_from(CLASSES), message=text, details=st.dictionaries(st.sampled_from(["column", "row", "epoch"]), text))
def test_every_error_survives_a_status(which, message, details):
    """Class, message and details. Catches two errors of one code that turn into each other: OUT_OF_MEMORY and QUEUE_FULL."""
    status = status_pb2.Status.FromString(errors.to_status(which(message, **details)).SerializeToString())
    back = errors.from_status(status)
    assert type(back) is which
    assert (str(back), back.details) == (message, details)
    assert status.code == which.code.value[0]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (which.reason, "tabgrpc")


def test_every_class_is_known_and_every_reason_one_class():
    """Catches an error that is added and then arrives as another."""

    def below(cls: type) -> set[type]:
        return {cls, *(each for sub in cls.__subclasses__() for each in below(sub))}

    own = {each for each in below(errors.ServiceError) if each.__module__ == errors.__name__}  # others arrive as what they derive from
    assert own - {errors.ServiceError} == set(CLASSES) == set(errors._CLASSES)
    assert len({each.reason for each in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidArgument),
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        # without our reason: a configuration error, which halving would never mend
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.InternalError),
    ],
)
def test_a_status_of_somebody_elses(code, wanted):
    """From grpc itself, or with ErrorInfo of another domain."""
    info = any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(reason="OUT_OF_MEMORY", domain="example.com"))
    for details in ([], [info]):
        back = errors.from_status(status_pb2.Status(code=code.value[0], message="m", details=details))
        assert type(back) is wanted
        assert "m" in str(back)


# --- over a socket ---


class Service:
    """Raises what it is told to."""

    def __init__(self) -> None:
        self.error: BaseException = RuntimeError("not set")

    @errors.guarded
    def Unary(self, request, context):
        raise self.error

    @errors.guarded_stream
    def Stream(self, request, context):
        yield empty_pb2.Empty()
        raise self.error


@pytest.fixture
def served(tmp_path):
    """(service, channel) over a unix socket."""
    service = Service()
    empty = {"request_deserializer": empty_pb2.Empty.FromString, "response_serializer": empty_pb2.Empty.SerializeToString}
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(service.Unary, **empty),
        "Stream": grpc.unary_stream_rpc_method_handler(service.Stream, **empty),
    }
    server = grpc.server(ThreadPoolExecutor(2), options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", handlers)])
    address = bind(server, f"unix:{tmp_path}/s")
    server.start()
    with connect(address) as channel:
        yield service, channel
    server.stop(0).wait(10)


def call(channel: grpc.Channel, kind: str) -> errors.ServiceError:
    """What the caller of a failing call gets."""
    serializers = (empty_pb2.Empty.SerializeToString, empty_pb2.Empty.FromString)
    unary = channel.unary_unary("/test.Service/Unary", *serializers)
    stream = channel.unary_stream("/test.Service/Stream", *serializers)
    with pytest.raises(grpc.RpcError) as failed:
        unary(empty_pb2.Empty(), timeout=20) if kind == "Unary" else list(stream(empty_pb2.Empty(), timeout=20))
    return errors.from_rpc_error(failed.value)


@pytest.mark.parametrize("kind", ["Unary", "Stream"])
@pytest.mark.parametrize("which", CLASSES, ids=lambda each: each.reason)
def test_errors_cross_a_socket(served, kind, which):
    service, channel = served
    service.error = which("column 'é' has\nno number in row 3", column="é", row="3")
    got = call(channel, kind)
    assert type(got) is which
    assert (str(got), got.details) == (str(service.error), {"column": "é", "row": "3"})


@pytest.mark.parametrize("kind", ["Unary", "Stream"])
@pytest.mark.parametrize("error", [RuntimeError("password=hunter2"), KeyError("hunter2"), MemoryError("hunter2"), ValueError("hunter2")])
def test_the_unexpected_is_internal_with_an_id_that_the_log_has(served, kind, error, caplog):
    """Catches a text, a path or a value of somebody's table on the wire, and an id that leads nowhere."""
    service, channel = served
    service.error = error
    with caplog.at_level(logging.ERROR, "tabgrpc"):
        got = call(channel, kind)
    assert type(got) is errors.InternalError
    assert "hunter2" not in str(got) + str(got.details)
    identity = re.search(r"internal error ([0-9a-f]{12});", str(got)).group(1)
    (record,) = [each for each in caplog.records if identity in each.getMessage()]
    assert record.exc_info[1] is error


def test_a_long_message_arrives(served):
    """Messages travel as metadata, which gRPC caps. Catches a helpful list of 2,000 columns that turns into another error."""
    service, channel = served
    service.error = errors.InvalidArgument("columns " + ", ".join(f"'column number {at}'" for at in range(2000)), column="é" * 5000)
    got = call(channel, "Unary")
    assert type(got) is errors.InvalidArgument
    assert str(got).startswith("columns 'column number 0', 'column number 1'")
    assert str(got).endswith("…")
    service.error = errors.InvalidArgument("é" * 5000, column="\n" * 5000, row="\n" * 5000)  # the costliest to write as metadata
    assert str(call(channel, "Unary")).startswith("ééé")


def test_a_lost_server_is_unavailable(tmp_path):
    """grpc's own errors have no ErrorInfo."""
    with connect(f"unix:{tmp_path}/nobody") as channel:
        assert type(call(channel, "Unary")) is errors.Unavailable


def test_options_are_spelt_as_grpc_spells_them():
    """A misspelt channel argument is ignored in silence. These are the names in grpc's own headers."""
    known = {
        "grpc.max_send_message_length",
        "grpc.max_receive_message_length",
        "grpc.keepalive_time_ms",
        "grpc.keepalive_timeout_ms",
        "grpc.http2.ping_timeout_ms",
        "grpc.keepalive_permit_without_calls",
        "grpc.http2.max_pings_without_data",
        "grpc.enable_retries",
        "grpc.so_reuseport",
        "grpc.http2.min_recv_ping_interval_without_data_ms",
        "grpc.http2.max_ping_strikes",
    }
    assert {name for name, _ in (*CLIENT_OPTIONS, *SERVER_OPTIONS)} <= known
