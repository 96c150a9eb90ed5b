"""Writes random rows of many types into tables with many partitions through examples/python/firn_writes.py, and compares what PyIceberg and delta-rs read.

usage: all_types.py LOCATION CATALOG_DB WAREHOUSE; prints the statements that make the tables, and waits for a line.
"""
import datetime
import decimal
import math
import random
import sys
import uuid

import pyarrow as pa
from deltalake import DeltaTable
from firn_writes import Firn, write_batches
from pyiceberg.catalog.sql import SqlCatalog

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1)
R = random.Random(11)
ROWS = 400


def moment():
    return EPOCH + datetime.timedelta(days=R.randrange(-900, 900), hours=R.randrange(4), microseconds=R.choice((0, 1, 123456)))


def text():
    return R.choice(["", "a", "a/b=c", "äöü ∂", "zwei Worte", "%2F", "it's", "#1?"])


# Of each column: its SQL type, Arrow's, and how a value is made.
COLUMNS = {
    "i": ("int", pa.int32(), lambda: R.randrange(-40, 40)),
    "l": ("bigint", pa.int64(), lambda: R.randrange(-(2**62), 2**62)),
    "s": ("string", pa.string(), text),
    "b": ("boolean", pa.bool_(), lambda: R.random() < 0.5),
    "d": ("date", pa.date32(), lambda: moment().date()),
    "ts": ("timestamp", pa.timestamp("us"), moment),
    "tz": ("timestamptz", pa.timestamp("us", "UTC"), lambda: moment().replace(tzinfo=UTC)),
    "n": ("decimal(9,2)", pa.decimal128(9, 2), lambda: decimal.Decimal(R.randrange(-500, 500)).scaleb(-2)),
    "f": ("double", pa.float64(), lambda: R.choice((0.5, -1e300, 3.0))),
    "x": ("binary", pa.binary(), lambda: R.randbytes(R.randrange(3))),
    "t": ("time", pa.time64("us"), lambda: moment().time()),
    "u": ("uuid", pa.uuid(), lambda: uuid.UUID(int=R.randrange(5))),
}
ICEBERG = [
    "i", "s", "b", "d", "n", "x", "t", "u", "tz", "bucket(16, l)", "bucket(4, s)", "bucket(4, u)", "bucket(3, n)", "bucket(3, ts)", "truncate(10, i)", "truncate(1, s)", "truncate(100, n)",
    "year(d)", "month(ts)", "day(tz)", "hour(ts)", "hour(tz)", "month(d), bucket(2, i)", "year(ts), b, truncate(2, s)",
]
DELTA = ["i", "s", "b", "d", "n", "ts", "tz", "l, s", "b, d"]
NOT_IN_DELTA = {"t", "u"}


def table(columns):
    values = {c: [None if R.random() < 0.1 else COLUMNS[c][2]() for _ in range(ROWS)] for c in columns}
    return pa.table({"id": pa.array(range(ROWS), pa.int64()), **{c: pa.array(v, COLUMNS[c][1]) for c, v in values.items()}})


def plain(v):
    if isinstance(v, bytes) and len(v) == 16:
        return uuid.UUID(bytes=v)
    if isinstance(v, datetime.datetime) and v.tzinfo:
        return v.astimezone(UTC)
    return None if isinstance(v, float) and math.isnan(v) else v


def same(what, got, want, empty_is_null=()):
    got, want = got.sort_by("id"), want.sort_by("id")
    assert got.num_rows == want.num_rows, f"{what}: {got.num_rows} rows, want {want.num_rows}"
    for name in want.column_names:
        a, b = ([plain(v) for v in t[name].to_pylist()] for t in (got, want))
        if name in empty_is_null:
            b = [None if v == "" else v for v in b]
        for i, (x, y) in enumerate(zip(a, b)):
            assert x == y, f"{what}: {name} of row {i} is {x!r}, want {y!r}"


def main():
    firn = Firn(sys.argv[1])
    catalog = SqlCatalog("lake", uri="sqlite:///" + sys.argv[2], warehouse=sys.argv[3])
    for i, spec in enumerate(ICEBERG):
        columns = ", ".join(f"{c} {sql}" for c, (sql, _, _) in COLUMNS.items())
        print(f"CREATE TABLE lake.types.i{i} (id bigint, {columns}) PARTITIONED BY ({spec});")
    inside = [c for c in COLUMNS if c not in NOT_IN_DELTA]
    for i, spec in enumerate(DELTA):
        columns = ", ".join(f"{c} {COLUMNS[c][0]}" for c in inside)
        print(f"CREATE TABLE lake.types.d{i} (id bigint, {columns}) USING delta PARTITIONED BY ({spec});")
    print(flush=True)
    sys.stdin.readline()

    for i, spec in enumerate(ICEBERG):
        rows = table(COLUMNS)
        write = firn.begin(f"lake.types.i{i}")
        report = write.commit([write_batches(write.task, part.to_batches(30)) for part in (rows.slice(0, 150), rows.slice(150))])
        read = catalog.load_table(f"types.i{i}")
        same(f"by {spec}", read.scan().to_arrow(), rows)
        values = {repr(task.file.partition) for task in read.scan().plan_files()}
        print(f"Iceberg by {spec}: {report['files']} files, {len(values)} partitions")
    # delta-rs 1.6.6 makes "0.-47" of the partition value -0.47 when it reads.
    COLUMNS["n"] = (*COLUMNS["n"][:2], lambda: decimal.Decimal(R.randrange(500)).scaleb(-2))
    for i, spec in enumerate(DELTA):
        rows = table(inside)
        write = firn.begin(f"lake.types.d{i}")
        report = write.commit([write_batches(write.task, part.to_batches(30)) for part in (rows.slice(0, 150), rows.slice(150))])
        location = write.task.context["prefix"].rstrip("/").rpartition("/")[0]
        names = [s.strip() for s in spec.split(",")]
        same(f"Delta by {spec}", DeltaTable(location).to_pyarrow_table(), rows, empty_is_null=names)
        print(f"Delta by {spec}: {report['files']} files")


main()
