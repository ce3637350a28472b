"""A client of a pool. Errors are those of ``tabgrpc.wire.errors``, never a bare grpc.RpcError."""

from __future__ import annotations

import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import pyarrow as pa

from tabgrpc.client.exported import receive
from tabgrpc.client.pieces import as_table, parts, stream_bytes
from tabgrpc.v1 import models_pb2, models_pb2_grpc, pool_pb2, pool_pb2_grpc, tables_pb2, tables_pb2_grpc
from tabgrpc.wire.channels import connect
from tabgrpc.wire.errors import Cancelled, InternalError, Unavailable, from_rpc_error, from_status

_PIECE_BYTES = 1 << 20
_FEW_ROWS = 256  # their answer fits a message whatever the model
_POLL_SECONDS = 0.25
_IN_FLIGHT = 16
_HICCUP_SECONDS = 30.0

Progress = Callable[[models_pb2.FitProgress], None]


class Client:
    """One connection to a pool, usable from many threads."""

    def __init__(self, address: str, *, timeout: float = 60.0) -> None:
        """address: "host:port" or "unix:/path". timeout: seconds for a call that isn't a fit, a load or a stream."""
        self.address = address
        self._timeout = timeout
        self._channel = connect(address)
        self._tables = tables_pb2_grpc.TableServiceStub(self._channel)
        self._models = models_pb2_grpc.ModelServiceStub(self._channel)
        self._pool = pool_pb2_grpc.PoolServiceStub(self._channel)

    # --- tables ---

    def upload(self, table: pa.Table) -> str:
        """Sends a table; returns "tables/{table}". A broken connection is taken up again where it broke, a few times."""
        return self.upload_stream(stream_bytes(table))

    def upload_stream(self, data: memoryview) -> str:
        """``upload`` of a table that is an Arrow IPC stream already."""
        request_id = uuid.uuid4().hex
        name = ""
        for attempt in range(5):
            try:
                created = self._call(self._tables.CreateTable, tables_pb2.CreateTableRequest(request_id=request_id)).table
                name = created.name
                self._call(self._tables.WriteTable, self._pieces(name, data, created.bytes_received), timeout=3600.0)
                self._call(self._tables.CommitTable, tables_pb2.CommitTableRequest(name=name, size=len(data)), timeout=3600.0)
                return name
            except Unavailable:
                if attempt == 4:
                    raise
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("the loop ends by returning or raising")

    @staticmethod
    def _pieces(name: str, data: memoryview, start: int) -> Iterator[tables_pb2.WriteTableRequest]:
        for offset in range(start, len(data), _PIECE_BYTES):
            piece = bytes(data[offset : offset + _PIECE_BYTES])
            yield tables_pb2.WriteTableRequest(name=name, offset=offset, data=piece, checksum=zlib.crc32(piece))
        if start == len(data):
            yield tables_pb2.WriteTableRequest(name=name, offset=start)

    def drop_table(self, table_name: str) -> None:
        """Forgets a table that was sent."""
        self._call(self._tables.DeleteTable, tables_pb2.DeleteTableRequest(name=table_name))

    # --- models ---

    def plan(self, table_name: str, options: models_pb2.FitOptions) -> models_pb2.PlanModelResponse:
        """What a fit would cost."""
        return self._call(self._models.PlanModel, models_pb2.PlanModelRequest(table=table_name, options=options), timeout=3600.0)

    def fit(
        self, model: str, table_name: str, options: models_pb2.FitOptions, *, progress: Progress | None = None, timeout: float | None = None
    ) -> models_pb2.Model:
        """Fits a table and waits. model: a name without prefix. progress: called a few times a second.

        timeout: seconds, None waits for as long as it takes. Whatever ends the wait before the fit gives the fit up.
        """
        request = models_pb2.CreateModelRequest(
            model=f"models/{model}", table=table_name, options=options, request_id=uuid.uuid4().hex
        )
        operation = self._call(self._models.CreateModel, request).operation
        end = None if timeout is None else time.monotonic() + timeout
        reached = time.monotonic()
        try:
            while not operation.done:
                wait = models_pb2.GetOperationRequest(name=operation.name, wait_seconds=_POLL_SECONDS)
                try:
                    operation = self._call(self._models.GetOperation, wait).operation
                    reached = time.monotonic()
                except Unavailable:  # a hiccup of the connection is no reason to give up hours of work
                    if time.monotonic() - reached > _HICCUP_SECONDS:
                        raise
                    time.sleep(_POLL_SECONDS)
                    continue
                if progress is not None and operation.metadata.Is(models_pb2.FitProgress.DESCRIPTOR):
                    now = models_pb2.FitProgress()
                    operation.metadata.Unpack(now)
                    progress(now)
                if end is not None and time.monotonic() > end and not operation.done:
                    raise TimeoutError(f"the fit of {model} took longer than {timeout:.0f} s")
        except BaseException:
            self._cancel(operation.name)
            raise
        if operation.HasField("error"):
            raise from_status(operation.error)
        fitted = models_pb2.Model()
        operation.response.Unpack(fitted)
        return fitted

    def _cancel(self, operation: str) -> None:
        from contextlib import suppress

        with suppress(Exception):  # the reason for giving up is what the caller must see
            self._call(self._models.CancelOperation, models_pb2.CancelOperationRequest(name=operation), timeout=5.0)

    def load(self, model: str, directory: str = "", *, strict_bits: bool = False) -> models_pb2.Model:
        """Serves a model of the pool's store."""
        request = models_pb2.LoadModelRequest(model=f"models/{model}", directory=directory, strict_bits=strict_bits)
        return self._call(self._models.LoadModel, request, timeout=3600.0).model

    def model(self, name: str) -> models_pb2.Model:
        """One model."""
        return self._call(self._models.GetModel, models_pb2.GetModelRequest(name=f"models/{name}")).model

    def models(self) -> list[models_pb2.Model]:
        """All models, in order of their names."""
        found: list[models_pb2.Model] = []
        token = ""
        while True:
            page = self._call(self._models.ListModels, models_pb2.ListModelsRequest(page_token=token))
            found += page.models
            if not (token := page.next_page_token):
                return found

    def pin(self, name: str) -> models_pb2.Model:
        """Keeps a loaded model's context in the fastest memory whatever else comes. Raises OutOfMemory if it doesn't fit."""
        return self._call(self._models.PinModel, models_pb2.PinModelRequest(name=f"models/{name}"), timeout=3600.0).model

    def unpin(self, name: str) -> models_pb2.Model:
        """Undoes ``pin``."""
        return self._call(self._models.UnpinModel, models_pb2.UnpinModelRequest(name=f"models/{name}"), timeout=3600.0).model

    def verify(self, name: str) -> Iterator[models_pb2.VerifyModelResponse]:
        """Every file of a model as it is read against its digest."""
        yield from self._answers(self._models.VerifyModel(models_pb2.VerifyModelRequest(name=f"models/{name}")))

    def export(self, name: str, destination: Path | str) -> Path:
        """Copies a model of the pool's store to a new folder here, whole or not at all. Raises FileExistsError, DamagedModel."""
        answers = self._answers(self._models.ExportModel(models_pb2.ExportModelRequest(name=f"models/{name}")))
        return receive(answers, Path(destination))

    @staticmethod
    def _answers(call: Any) -> Iterator[Any]:
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()

    def delete(self, name: str) -> None:
        """Frees a model and removes its files from the pool's store."""
        self._call(self._models.DeleteModel, models_pb2.DeleteModelRequest(name=f"models/{name}"))

    # --- predict ---

    def predict(self, model: str, table: Any, *, quantiles: Sequence[float] = (), timeout: float | None = None) -> pa.Table:
        """Answers for all rows of a pyarrow Table (or what ``pa.table`` or ``Table.from_pandas`` takes), in their order.

        Columns: "prediction"; "proba_<class>" of each class, or "q<level>" of each quantile. timeout: seconds for everything.
        """
        wanted = models_pb2.PredictRequest(quantiles=quantiles)
        rows = as_table(table)
        width = self._width(model, wanted) if rows.num_rows > _FEW_ROWS else 16
        return pa.concat_tables(self.stream(model, iter([rows]), wanted, width=width, timeout=timeout))

    def stream_predict(
        self,
        model: str,
        tables: Iterable[pa.Table],
        *,
        quantiles: Sequence[float] = (),
        wanted: models_pb2.PredictRequest | None = None,
    ) -> Iterator[pa.Table]:
        """One answer for each table, in order. Rows of several tables are under way together, a bounded number of bytes.

        wanted: its outputs and draws are asked for too.
        """
        rows: deque[int] = deque()

        def counted() -> Iterator[pa.Table]:
            for table in map(as_table, tables):
                rows.append(table.num_rows)
                yield table

        found: list[pa.Table] = []
        asked = models_pb2.PredictRequest(quantiles=quantiles)
        asked.MergeFrom(wanted or models_pb2.PredictRequest())
        for answer in self.stream(model, counted(), asked, width=self._width(model, asked)):
            found.append(answer)
            if sum(part.num_rows for part in found) == rows[0]:  # no request has rows of two tables
                yield pa.concat_tables(found)
                found.clear()
                rows.popleft()

    def _width(self, model: str, wanted: models_pb2.PredictRequest) -> int:
        """Columns that a model's answers have, about."""
        known = 2 + 2 * len(self.model(model).classes) + len(wanted.quantiles) + wanted.draws.count
        wide = models_pb2.OUTPUT_RAW_QUANTILES in wanted.outputs or models_pb2.OUTPUT_EMBEDDINGS in wanted.outputs
        return known + 1024 * wide

    def stream(
        self,
        model: str,
        tables: Iterator[pa.Table],
        wanted: models_pb2.PredictRequest,
        *,
        width: int = 16,
        timeout: float | None = None,
    ) -> Iterator[pa.Table]:
        """Answers in pieces, in order. Rows go in requests of bounded bytes, a bounded number of them unanswered.

        wanted: its quantiles, outputs and draws count. width: columns that an answer has, about; wide answers come in fewer rows each.
        """
        slots = threading.Semaphore(_IN_FLIGHT)
        failed: list[BaseException] = []  # of the caller's tables, which gRPC takes in a thread of its own

        def requests() -> Iterator[models_pb2.StreamPredictRequest]:
            first = 0
            try:
                for table in tables:
                    for part in parts(table, width):
                        slots.acquire()
                        rows = models_pb2.PredictRequest(model=f"models/{model}", arrow=bytes(stream_bytes(part)), first_row=first)
                        rows.MergeFrom(wanted)
                        yield models_pb2.StreamPredictRequest(request=rows)
                        first += part.num_rows
            except Exception as error:
                failed.append(error)
                raise

        call = self._models.StreamPredict(requests(), timeout=timeout)
        try:
            for response in call:
                slots.release()
                with pa.ipc.open_stream(response.response.arrow) as reader:
                    yield reader.read_all()
        except grpc.RpcError as error:
            if failed:
                raise failed[0] from None
            raise from_rpc_error(error) from None
        finally:
            slots.release(_IN_FLIGHT)  # wakes a sender that waits, so that its thread can end
            call.cancel()

    # --- the pool ---

    def pool(self) -> pool_pb2.GetPoolResponse:
        """Workers and what they own."""
        return self._call(self._pool.GetPool, pool_pb2.GetPoolRequest())

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: Callable[..., Any], request: Any, timeout: float | None = None) -> Any:
        try:
            return method(request, timeout=self._timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        except ValueError as error:
            if "closed channel" in str(error):
                raise Cancelled("this client is closed") from None
            raise InternalError(str(error)) from error
