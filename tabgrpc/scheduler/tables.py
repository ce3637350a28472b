"""Tables on their way in: an Arrow IPC stream, received in checked pieces, kept in a file until a model was made of it."""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tabgrpc.v1 import tables_pb2 as pb
from tabgrpc.wire.errors import InvalidArgument, NotFound

MAX_PIECE_BYTES = 2 << 20
MAX_REQUEST_ID = 128
MAX_TABLES = 64
"""Kept at once; beyond it the oldest is forgotten."""


@dataclass
class Upload:
    """A table that is being received or was. Guarded by ``lock``."""

    name: str
    path: Path
    received: int = 0
    table: pa.Table | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def to_proto(self) -> pb.Table:
        rows, columns = (0, []) if self.table is None else (self.table.num_rows, self.table.column_names)
        return pb.Table(name=self.name, rows=rows, columns=columns, bytes_received=self.received)


class Tables:
    """Tables by name."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="tabgrpc-tables-"))
        self._uploads: dict[str, Upload] = {}
        self._requests: dict[str, str] = {}
        self._lock = threading.Lock()

    def create(self, request_id: str) -> Upload:
        """A new table, or the one that this request made before."""
        if len(request_id) > MAX_REQUEST_ID:
            raise InvalidArgument(f"request_id has {len(request_id)} characters, at most {MAX_REQUEST_ID} are kept")
        with self._lock:
            known = self._requests.get(request_id) if request_id else None
            if known in self._uploads:
                return self._uploads[known]
            for oldest in list(self._uploads)[: max(0, len(self._uploads) + 1 - MAX_TABLES)]:
                self._uploads.pop(oldest).path.unlink(missing_ok=True)
            identity = uuid.uuid4().hex
            upload = Upload(f"tables/{identity}", self._directory / f"{identity}.arrows")
            upload.path.touch()
            self._uploads[upload.name] = upload
            self._requests = {key: name for key, name in self._requests.items() if name in self._uploads}
            if request_id:
                self._requests[request_id] = upload.name
            return upload

    def get(self, name: str) -> Upload:
        """By name. Raises NotFound."""
        with self._lock:
            upload = self._uploads.get(name)
        if upload is None:
            raise NotFound(f"no {name or 'table without a name'}")
        return upload

    def committed(self, name: str) -> pa.Table:
        """The rows of a committed table. Raises NotFound, InvalidArgument."""
        upload = self.get(name)
        if upload.table is None:
            raise InvalidArgument(f"{name} is not committed")
        return upload.table

    def write(self, requests: Iterable[pb.WriteTableRequest]) -> int:
        """Appends pieces; returns bytes received so far. A piece that doesn't follow or is damaged ends the stream, without harm."""
        upload: Upload | None = None
        for request in requests:
            if upload is None:
                upload = self.get(request.name)
            with upload.lock:
                if upload.table is not None:
                    raise InvalidArgument(f"{upload.name} is committed already")
                if request.offset != upload.received:
                    raise InvalidArgument(f"{upload.name} has {upload.received} bytes, the piece is for {request.offset}")
                if len(request.data) > MAX_PIECE_BYTES:
                    raise InvalidArgument(f"a piece has at most {MAX_PIECE_BYTES} bytes, not {len(request.data)}")
                if zlib.crc32(request.data) != request.checksum:
                    raise InvalidArgument(f"the piece at {request.offset} of {upload.name} is damaged: its checksum differs")
                with upload.path.open("ab") as file:
                    file.write(request.data)
                upload.received += len(request.data)
        if upload is None:
            raise InvalidArgument("an empty stream writes no table")
        return upload.received

    def commit(self, name: str, size: int) -> Upload:
        """Reads the whole. Raises InvalidArgument if bytes are missing or aren't an Arrow IPC stream."""
        upload = self.get(name)
        with upload.lock:
            if upload.table is None:
                if upload.received != size:
                    raise InvalidArgument(f"{name} has {upload.received} bytes, {size} were sent")
                upload.table = read_stream(pa.memory_map(str(upload.path)), name)
            return upload

    def delete(self, name: str) -> None:
        """Forgets a table."""
        upload = self.get(name)
        with self._lock:
            self._uploads.pop(name, None)
        upload.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Forgets them all."""
        shutil.rmtree(self._directory, ignore_errors=True)


def read_stream(source: pa.NativeFile | bytes, what: str) -> pa.Table:
    """The table of an Arrow IPC stream, validated. Raises InvalidArgument naming ``what``."""
    try:
        with pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidArgument(f"{what} is not a valid Arrow IPC stream: {str(error).splitlines()[0]}") from error
    return table


def write_stream(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
