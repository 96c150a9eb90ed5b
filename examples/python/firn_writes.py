"""A client of Firn's open write protocol in one file. It needs pyarrow and nothing else.

A driver begins a write and commits it; worker tasks, in other processes or on other machines, write the files:

    firn = Firn("grpc://127.0.0.1:7350")
    with firn.begin("lake.air.flights", key="load-2026-11-30") as write:
        if write.open:
            handles = [write_batches(write.task, batches) for batches in parts]    # in the workers
            report = write.commit(handles)
        else:
            report = write.outcome()    # an earlier run of this driver has sealed it

Exactly the files of these handles become one version of the table, however often tasks and drivers are tried again
under the key. docs/reference/write-protocol.md specifies what is said here.
"""
from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import decimal
import json
import os
import re
import threading
import time
import types
import uuid
from typing import Any, Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
import pyarrow.fs
import pyarrow.parquet as pq

class WriteError(Exception):
    """A call that failed. It changed nothing, unless it is one of the classes below, and says nothing of earlier calls. `fault` is what Firn said of it."""

    def __init__(self, message: str, fault: dict[str, Any] | None = None, status: dict[str, Any] | None = None):
        super().__init__(message)
        self.fault, self.status = fault or {}, status or {}


class Unanswered(WriteError):
    """Nobody answered, or not in a version that this client knows. Every call may be sent again, also by another process."""


class NotCommitted(WriteError):
    """The table has nothing of the write. `status` has its state: refused, failed, aborted or expired."""


class Unknown(WriteError):
    """Not proven either way: ask again under the same key (`resume`), and never write the rows under another one."""


class SealedWithOthers(WriteError):
    """Other handles are what the key stands for: another driver has committed them under this write, and they are in `status`, with what became of
    them; or another submission of the key, as by another scheduler, is in the table: then `status` has no `seal_digest`, its handles aren't known, and
    its numbers are in the `report`. Nothing of this driver's handles counts that isn't among those."""


def _again(call: Callable[[], Any], patience: float, what: str) -> Any:
    """Calls until there's an answer, for so many seconds. What may go through later is tried again too."""
    end, pause, sent = time.monotonic() + patience, 0.1, False
    while True:
        try:
            return call()
        except (flight.FlightError, pa.ArrowException, OSError, Unanswered, StopIteration) as e:
            error = _told(e, what)
        sent = sent or isinstance(error, Unanswered)
        if time.monotonic() + pause > end or not (isinstance(error, Unanswered) or error.fault.get("retryable")):
            # A try that wasn't answered may have gone through all the same.
            raise Unanswered(str(error), error.fault) if sent else error
        time.sleep(pause)
        pause = min(2 * pause, 5)


def _told(e: Exception, what: str) -> WriteError:
    """The error with what Firn said of it. Without that it's the network's, or the library's."""
    text = str(e.args[0]) if e.args else repr(e)  # str() of pyarrow's key errors is a repr
    said, mark, rest = text.partition(" firn-error:")
    if mark:
        said = re.sub(r"^Flight returned [^:]*, with message: ", "", said)  # it's the library's, and tells nothing that the fault doesn't
        with contextlib.suppress(ValueError):
            fault = json.JSONDecoder().raw_decode(rest)[0]
            return WriteError(f"{said}. {fault['hint']}" if fault.get("hint") else said, fault)
    refused = isinstance(e, (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)) or not isinstance(e, (flight.FlightError, OSError, Unanswered, StopIteration))
    return WriteError(f"{what}: {text}") if refused else Unanswered(f"{what}: {text}")


class Firn:
    """A scheduler. `location` is grpc://HOST:PORT, or grpc+tls://HOST:PORT with the CA's certificates in PEM; `token` a client token."""

    def __init__(self, location: str, token: str | None = None, tls_root_certs: bytes | None = None):
        self.location, self.certs = location, tls_root_certs
        self.client = flight.FlightClient(location, tls_root_certs=tls_root_certs)
        self.headers = [(b"authorization", b"Bearer " + token.encode())] if token else []

    def begin(self, table: str, key: str | None = None, **options: Any) -> Write:
        """Begins a write of a table, or finds the one that was begun under the key. Give a key that is the load's own, and the
        driver can be run again at any time. `options` are further fields of BeginWrite, such as ttl_seconds and dry_run."""
        if key is None and not options.get("dry_run"):
            key, options["key_is_new"] = f"py-{uuid.uuid4()}", True
        options.setdefault("engine", "firn_writes.py")
        return Write(self, self.act("BeginWrite", table=table, idempotency_key=key or "", **options))

    def resume(self, key: str) -> Write:
        """Finds the newest write that was begun under the key, also after a restart of this process or of the scheduler."""
        return Write(self, self.act("ResumeWrite", idempotency_key=key))

    def act(self, action: str, patience: float = 60, **fields: Any) -> dict[str, Any]:
        """One action of the protocol."""
        body = json.dumps({"version": 1, **fields}).encode()
        options = flight.FlightCallOptions(timeout=fields.get("wait_seconds", 0) + 30, headers=self.headers)

        def once() -> dict[str, Any]:
            return json.loads(next(self.client.do_action(flight.Action("firn.v1." + action, body), options)).body.to_pybytes())

        answer = _again(once, patience, action)
        if answer.get("version") != 1:  # its fields may mean something else, and so it says nothing of what the call has done
            raise Unanswered(f"{action}: the answer is of version {answer.get('version')}, and this is a client of version 1")
        return answer

    def hand_in(self, write_id: str, attempt: str, manifest: pa.Table, patience: float = 60) -> str:
        """Hands a manifest in and gives its handle."""
        descriptor = flight.FlightDescriptor.for_path("firn.v1.manifest", write_id, attempt)
        options = flight.FlightCallOptions(timeout=60, headers=self.headers)

        def once() -> str:
            writer, reader = self.client.do_put(descriptor, manifest.schema, options)
            with writer:
                writer.write_table(manifest, max_chunksize=10_000)
                writer.done_writing()
                answer = reader.read()
            if answer is None:
                raise Unanswered("the scheduler ended the call without a handle")
            return answer.to_pybytes().decode()

        return _again(once, patience, "DoPut")


@dataclasses.dataclass(frozen=True)
class Task:
    """What a worker needs. It's plain data, to be pickled, and holds no secret of the catalog and no client token."""

    location: str
    certs: bytes | None
    context: dict[str, Any]


class Write:
    """A write, as its driver sees it. As a context manager it's kept open, and aborted when the block ends in an error before `commit`."""

    def __init__(self, firn: Firn, answer: dict[str, Any]):
        self.firn = firn
        self.status: dict[str, Any] = answer["status"]
        self.context: dict[str, Any] | None = answer.get("context")
        self.id: str = self.status["write_id"]
        self.key: str = self.status["idempotency_key"]
        self._committing = False
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep_open, daemon=True)

    @property
    def open(self) -> bool:
        """Whether files can be written. If not, `outcome` tells what became of it."""
        return self.context is not None

    @property
    def task(self) -> Task:
        """What workers need."""
        if self.context is None:
            raise WriteError(f"write {self.id} isn't open, it is {self.status['state']}")
        return Task(self.firn.location, self.firn.certs, self.context)

    def commit(self, handles: Iterable[str], deadline: float = 600) -> dict[str, Any]:
        """Commits exactly the files of the handles, and gives the report. Raises NotCommitted if the table has nothing of them, SealedWithOthers if
        another driver or scheduler came first with others, Unknown if it isn't known after `deadline` seconds or the call failed, and WriteError for a handle that isn't one
        of this write's: then the write is still open. After a commit of which nobody said what came of it, that is Unknown too."""
        before, self._committing = self._committing, True
        end = time.monotonic() + deadline
        try:
            answer = self.firn.act("CommitWrite", deadline, write_id=self.id, handles=sorted(set(handles)), wait_seconds=int(min(30, deadline)))
        except WriteError as e:
            # That this call changed nothing doesn't tell what became of those before it, of this driver or another. A void handle does:
            # handles are looked at while a write is open. But one of this driver's may still be on its way.
            if e.fault.get("code") == "FIRN-6044" and not before:
                self._committing = False
                raise WriteError(str(e), e.fault) from e
            raise Unknown(f"write {self.id}: {e}", e.fault) from e
        self.status = answer["status"]
        if answer["result"] == "sealed_with_other_handles" and self.status.get("seal_digest"):
            raise SealedWithOthers(f"write {self.id} was sealed with other handles than these; those are {self.status['state']}", status=self.status)
        return self.outcome(end - time.monotonic())

    def outcome(self, deadline: float = 600) -> dict[str, Any]:
        """Waits for what becomes of a sealed write: its report, or an error as `commit` raises them; WriteError if nothing is sealed. Of a write whose key
        was committed before it could open it gives that report, which has `other_submission`. One with `rolled_back` was committed and taken out of the
        table's history since."""
        end, ask = time.monotonic() + deadline, {"committing"}
        if self._committing:  # a commit may have sealed it though nobody heard of it: "open" is what was known before
            ask.add("open")
        while self.status["state"] in ask and (left := end - time.monotonic()) > 0:
            ask.discard("open")
            try:
                self.status = self.firn.act("WriteStatus", left, write_id=self.id, wait_seconds=int(min(30, left)))["status"]
            except WriteError as e:
                raise Unknown(f"nobody says how write {self.id} stands: {e}", e.fault, self.status) from e
        state, fault = self.status["state"], self.status.get("error") or {}
        why = fault.get("cause") or fault.get("op") or self.status.get("waits_for")
        why = f": {why}" if why else ""
        if state == "committed_by_other" or state == "committed" and self._committing and not self.status.get("seal_digest"):
            raise SealedWithOthers(f"write {self.id} isn't committed: another submission of its key is in the table, with handles that aren't known here", status=self.status)
        if state in ("committed", "verified"):
            return self.status["report"]
        if state in ("refused", "failed", "aborted", "expired"):
            raise NotCommitted(f"write {self.id} isn't committed, it is {state}{why}", fault, self.status)
        if state == "open" and "open" not in ask:
            raise WriteError(f"write {self.id} is open: nothing was committed yet", status=self.status)
        raise Unknown(f"write {self.id} {'was' if state == 'open' else 'is'} {state}{why}", fault, self.status)

    def abort(self) -> dict[str, Any]:
        """Gives the write up, unless it is sealed. The status tells which."""
        self.status = self.firn.act("AbortWrite", write_id=self.id)["status"]
        return self.status

    def renew(self) -> None:
        """Keeps the write open for another ttl, and gets fresh keys for workers that start from now on."""
        self.context = self.firn.act("RenewWrite", write_id=self.id).get("context")

    def _keep_open(self) -> None:
        while self.context and not self._ended.wait(max(1, _left(self.context["expires_at"]) / 3)):
            with contextlib.suppress(WriteError):  # the next one may go through
                self.renew()

    def __enter__(self) -> Write:
        self._keeper.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._ended.set()
        self._keeper.join()
        if error is not None and self.open and not self._committing:
            self.abort()


def write_batches(task: Task, batches: Iterable[pa.RecordBatch | pa.Table], label: str = "a") -> str:
    """Writes rows as one attempt of a task, hands the files in, and gives the handle for the driver. Columns are found by name.

    Every call is an attempt of its own, with an id that no other has: that of a task which an engine tries again, or runs twice at a
    time, isn't enough, as engines count from the start after a restart. `label` goes into the names of the files, for people."""
    attempt = f"{label}.{uuid.uuid4().hex}"
    firn = Firn(task.location, task.context["worker_token"], task.certs)
    writer = _Writer(firn, task.context, attempt)
    try:
        for batch in batches:
            writer.add(batch)
        # A manifest of paths: Firn reads the footers itself.
        text = pa.string()
        schema = pa.schema([pa.field("path", text, False), ("size", pa.int64()), ("rows", pa.int64()), ("partition", pa.map_(text, text))])
        return firn.hand_in(task.context["write_id"], attempt, pa.Table.from_pylist(writer.finish(), schema))
    finally:
        for file in writer.open.values():  # after an error; nobody has heard of these, and they are deleted with the write
            with contextlib.suppress(Exception):
                file.sink.close()
        firn.client.close()


class _Store:
    """The place where the files go, with keys that are renewed before they end."""

    margin = 300  # seconds

    def __init__(self, firn: Firn, context: dict[str, Any]):
        self.firn, self.context, self.asked = firn, context, float("-inf")
        self._open_store()

    def _open_store(self) -> None:
        self.storage = self.context["storage"]
        self.keys = self.storage.get("credentials") or {}
        if self.storage["kind"] == "file":
            self.files: pyarrow.fs.FileSystem = pyarrow.fs.LocalFileSystem()
            return
        endpoint = self.storage.get("endpoint") or None
        self.files = pyarrow.fs.S3FileSystem(
            access_key=self.keys.get("access_key_id"), secret_key=self.keys.get("secret_access_key"), session_token=self.keys.get("session_token"),
            anonymous=not self.keys, region=self.storage.get("region") or "us-east-1", endpoint_override=endpoint,
            scheme="http" if (endpoint or "").startswith("http://") else "https", force_virtual_addressing=not self.storage.get("path_style", False))

    def ending(self) -> bool:
        """Whether the keys end soon; asked for at most each half a minute, should the store give none that last."""
        return "expires_at" in self.keys and _left(self.keys["expires_at"]) < self.margin and time.monotonic() > self.asked + 30

    def renew(self, **expired: str) -> None:
        self.asked = time.monotonic()
        answer = self.firn.act("RenewWrite", write_id=self.context["write_id"], **expired)
        if "context" not in answer:
            raise WriteError(f"the write isn't open any more, it is {answer['status']['state']}", status=answer["status"])
        self.context = answer["context"]
        self._open_store()

    def create(self, uri: str) -> pa.NativeFile:
        path = uri.split("://", 1)[1]  # BUCKET/KEY, or /PATH; nothing in it is escaped
        if self.storage["kind"] == "file":
            os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            return self.files.open_output_stream(path)
        except OSError:
            if not self.keys:
                raise
        self.renew(expired_access_key_id=self.keys["access_key_id"])  # keys that a store refuses may have ended by its clock
        return self.files.open_output_stream(path)

    def settle(self, uri: str) -> None:
        """What was written must outlive a crash of the machine before Firn hears of it; an object does."""
        if self.storage["kind"] == "file":
            path = uri.split("://", 1)[1]
            for name in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
                handle = os.open(name, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)


class _Writer:
    """Splits rows by partition, gathers them into row groups, and rolls files at the table's target size."""

    at_once = 16 << 20  # bytes of rows that are split at once: engines hand over small batches
    memory = 64 << 20  # bytes of rows that wait for their row group, of all partitions together
    most_open = 16  # files; each has a buffer of the store's

    def __init__(self, firn: Firn, context: dict[str, Any], attempt: str):
        self.context, self.attempt, self.store = context, attempt, _Store(firn, context)
        self.table_schema = pa.ipc.open_stream(base64.b64decode(context["arrow_schema"])).schema
        self.schema = pa.schema([self.table_schema.field(name) for name in context["file_columns"]])
        self.codec = context["properties"].get("write.parquet.compression-codec", "zstd").lower().replace("uncompressed", "none")
        self.fresh: list[pa.Table] = []
        self.waiting: dict[tuple, list[pa.Table]] = {}
        self.sizes: dict[tuple, int] = {}  # of what waits
        self.open: dict[tuple, types.SimpleNamespace] = {}  # files, each with uri, sink, parquet and rows
        self.done: list[dict[str, Any]] = []

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        table = self._fit(batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch]))
        self.fresh.append(table)
        if sum(t.nbytes for t in self.fresh) > self.at_once:
            self._split()

    def _split(self) -> None:
        """Sorts fresh rows into partitions, and writes out what has become too much."""
        if self.store.ending():
            self._close_all()  # with the keys that they were opened with
            self.store.renew()
        for key, rows in partitions(pa.concat_tables([self.table_schema.empty_table(), *self.fresh]), self.context):
            rows = rows.select(self.schema.names)
            self.waiting.setdefault(key, []).append(rows)
            self.sizes[key] = self.sizes.get(key, 0) + rows.nbytes
        self.fresh = []
        while sum(self.sizes.values()) > self.memory:
            self._flush(max(self.sizes, key=self.sizes.__getitem__))

    def _fit(self, table: pa.Table) -> pa.Table:
        """The rows with the table's columns and types, and the field ids that its schema has."""
        if unknown := set(table.column_names) - set(self.table_schema.names):
            raise ValueError(f"{self.context['table']} has no column {sorted(unknown)[0]!r}; it has {', '.join(self.table_schema.names)}")
        for f in self.table_schema:
            if f.name in table.column_names and pa.types.is_timestamp(f.type) and (f.type.tz is None) != (getattr(table.schema.field(f.name).type, "tz", f.type.tz) is None):
                raise ValueError(f"column {f.name} of {self.context['table']} is {f.type}, and the rows have {table.schema.field(f.name).type}: a moment with a time zone isn't one without")
        columns = [table[f.name] if f.name in table.column_names else pa.nulls(table.num_rows, f.type) for f in self.table_schema]
        return pa.Table.from_arrays(columns, self.table_schema.names).cast(self.table_schema)

    def _flush(self, key: tuple) -> None:
        """Writes what waits for a partition as one row group."""
        rows = pa.concat_tables(self.waiting.pop(key))
        del self.sizes[key]
        if key not in self.open:
            if len(self.open) >= self.most_open:
                self._close(next(iter(self.open)))
            uri = f"{self.context['prefix']}{self.attempt}-{len(self.done) + len(self.open):05d}.parquet"
            sink = self.store.create(uri)
            self.open[key] = types.SimpleNamespace(uri=uri, sink=sink, parquet=pq.ParquetWriter(sink, self.schema, compression=self.codec), rows=0)
        file = self.open[key]
        file.parquet.write_table(rows, row_group_size=max(1, rows.num_rows))
        file.rows += rows.num_rows
        if file.sink.tell() >= self.context["target_file_size"]:
            self._close(key)

    def _close(self, key: tuple) -> None:
        file = self.open.pop(key)
        file.parquet.close()
        size = file.sink.tell()
        file.sink.close()
        self.store.settle(file.uri)
        names = [field["name"] for field in self.context["partition"]]
        self.done.append({"path": file.uri, "size": size, "rows": file.rows, "partition": list(zip(names, key))})

    def _close_all(self) -> None:
        """Closes what is open; `done` describes the files."""
        for key in list(self.waiting):
            self._flush(key)
        for key in list(self.open):
            self._close(key)

    def finish(self) -> list[dict[str, Any]]:
        self._split()
        self._close_all()
        return self.done


def partitions(table: pa.Table, context: dict[str, Any]) -> Iterator[tuple[tuple, pa.Table]]:
    """The rows of each partition, with its values in the order of the spec. Transforms see each distinct value once."""
    fields = context["partition"]
    if not table.num_rows or not fields:
        yield from [((), table)] if table.num_rows else []
        return
    keys, names = [], [f"k{i}" for i in range(len(fields))]
    for f in fields:
        first, *inside = [f["source"]] if f["source"] in table.column_names else f["source"].split(".")
        column = table[first].combine_chunks()
        keys.append(_texts(pc.struct_field(column, inside) if inside else column, f["transform"], context["format"]))
    rows = pa.table([*keys, pa.array(range(table.num_rows))], [*names, "row"])
    groups = rows.group_by(names, use_threads=False).aggregate([("row", "list")])
    for i in range(groups.num_rows):
        yield tuple(groups[n][i].as_py() for n in names), table.take(groups["row_list"][i].values)


def _texts(column: pa.Array, transform: str, format: str) -> pa.Array:
    uuids = isinstance(column.type, pa.UuidType)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if transform in _TIMES:
        column = pc.floor_temporal(column, unit=transform)
    encoded = column.dictionary_encode()
    values = [v if v is None or not uuids else uuid.UUID(bytes=v) for v in encoded.dictionary.to_pylist()]
    return pa.array([partition_text(v, transform, format) for v in values], pa.string()).take(encoded.indices)


def partition_text(value: Any, transform: str = "identity", format: str = "iceberg") -> str | None:
    """A value of the source column under a transform, as a text."""
    name, _, number = transform.rstrip("]").partition("[")
    if value is None or name == "void":
        return None
    if name in _TIMES:
        return _TIMES[name].format(value)
    if name == "bucket":
        return str((_murmur3(_hashed(value)) & 0x7FFFFFFF) % int(number))
    if name == "truncate":
        value = _truncate(value, int(number))
    elif name != "identity":
        raise NotImplementedError(f"the transform {transform}")
    if isinstance(value, (bool, float)):
        return json.dumps(value)
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime) and format == "delta":
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z") if value.tzinfo else value.isoformat(" ", "microseconds")
    if isinstance(value, (datetime.datetime, datetime.time)):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, bytes):
        if format == "delta":
            raise NotImplementedError("a Delta table that is partitioned by a binary column")
        return base64.b64encode(value).decode()
    return str(value) or (None if format == "delta" else "")  # Delta has no empty text in partitions


_DAY = "{0.year:04}-{0.month:02}-{0.day:02}"
_TIMES = {"year": "{0.year:04}", "month": "{0.year:04}-{0.month:02}", "day": _DAY, "hour": _DAY + "-{0.hour:02}"}


def _truncate(value: Any, width: int) -> Any:
    if isinstance(value, (str, bytes)):
        return value[:width]
    if isinstance(value, decimal.Decimal):
        unscaled = _unscaled(value)
        return decimal.Decimal(unscaled - unscaled % width).scaleb(value.as_tuple().exponent, decimal.Context(prec=40))
    return value - value % width


def _unscaled(value: decimal.Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    return (-1) ** sign * int("".join(map(str, digits)))


def _hashed(value: Any) -> bytes:
    """What the specification has hashed of a value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, decimal.Decimal):
        n = _unscaled(value)
        return n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, datetime.datetime):
        value = (value - datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo)) // datetime.timedelta(microseconds=1)
    elif isinstance(value, datetime.date):
        value = (value - datetime.date(1970, 1, 1)).days
    elif isinstance(value, datetime.time):
        value = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value if isinstance(value, bytes) else value.to_bytes(8, "little", signed=True)


def _murmur3(data: bytes) -> int:
    """MurmurHash3 of 32 bits with seed 0."""

    def mix(k: int) -> int:
        k = k * 0xCC9E2D51 & 0xFFFFFFFF
        return (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF

    h, whole = 0, len(data) // 4 * 4
    for i in range(0, whole, 4):
        h ^= mix(int.from_bytes(data[i : i + 4], "little"))
        h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= mix(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def _left(moment: str) -> float:
    """Seconds until a moment, which is in UTC."""
    return (datetime.datetime.fromisoformat(moment[:19]) - datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)).total_seconds()
