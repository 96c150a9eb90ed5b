"""Makes the golden files beside this script, each by a real writer, and expected.json,
which says what others derive from them: PyIceberg of the Iceberg files, the writer's
own log of the Delta ones.

    python -m venv venv && venv/bin/pip install pyarrow==26.0.1 duckdb==1.5.5 pyiceberg==0.12.0 deltalake==1.6.6
    venv/bin/python format/footer/testdata/make.py

The files are small, and the tests hold them against what the tables below say.
"""
import base64
import datetime as dt
import decimal
import json
import os
import tempfile
import uuid

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (compute_statistics_plan, data_file_statistics_from_parquet_metadata,
                                  parquet_path_to_id_mapping)
from pyiceberg.schema import Schema
from pyiceberg import types as t

HERE = os.path.dirname(os.path.abspath(__file__))
os.chdir(HERE)
D, UTC = decimal.Decimal, dt.timezone.utc

FIELDS = [
    t.NestedField(1, "b", t.BooleanType()), t.NestedField(2, "i", t.IntegerType()), t.NestedField(3, "l", t.LongType(), required=True),
    t.NestedField(4, "f", t.FloatType()), t.NestedField(5, "d", t.DoubleType()), t.NestedField(6, "dec", t.DecimalType(9, 2)),
    t.NestedField(7, "big", t.DecimalType(38, 10)), t.NestedField(8, "date", t.DateType()), t.NestedField(9, "time", t.TimeType()),
    t.NestedField(10, "ts", t.TimestampType()), t.NestedField(11, "tz", t.TimestamptzType()), t.NestedField(12, "s", t.StringType()),
    t.NestedField(13, "u", t.UUIDType()), t.NestedField(14, "fix", t.FixedType(3)), t.NestedField(15, "bin", t.BinaryType()),
    t.NestedField(16, "list", t.ListType(17, t.IntegerType(), element_required=False)),
    t.NestedField(18, "map", t.MapType(19, t.StringType(), 20, t.LongType(), value_required=False)),
    t.NestedField(21, "st", t.StructType(t.NestedField(22, "x", t.IntegerType()), t.NestedField(23, "y", t.StringType()))),
]
SCHEMA = Schema(*FIELDS)
ROWS = [
    dict(b=True, i=-1, l=7, f=1.5, d=-2.25, dec=D("1234567.89"), big=D("-12345678901234567890.0123456789"), date=dt.date(1969, 12, 31),
         time=dt.time(23, 59, 59, 999999), ts=dt.datetime(1969, 12, 31, 23, 59, 59, 999999), tz=dt.datetime(2001, 7, 1, 12, 0, 0, 1, UTC),
         s="zebra and a text that is longer than sixteen", u=uuid.UUID("f1234567-89ab-cdef-0123-456789abcdef").bytes, fix=b"\x00\xff\x02", bin=b"\xff" * 20,
         list=[1, None, 3], map=[("a", 1), ("b", None)], st=dict(x=5, y="why")),
    dict(b=None, i=None, l=8, f=None, d=None, dec=None, big=None, date=None, time=None, ts=None, tz=None, s=None, u=None, fix=None, bin=None,
         list=None, map=None, st=None),
    dict(b=False, i=2147483647, l=-9223372036854775808, f=0.0, d=0.0, dec=D("-0.01"), big=D("0"), date=dt.date(1, 1, 1), time=dt.time(0),
         ts=dt.datetime(2001, 1, 1), tz=dt.datetime(1969, 12, 31, tzinfo=UTC), s="é✓", u=b"\0" * 16, fix=b"\xff\xff\xff", bin=b"\x80",
         list=[], map=[], st=dict(x=None, y="")),
    dict(b=False, i=5, l=9, f=-3.5, d=1e300, dec=D("7"), big=D("1"), date=dt.date(2020, 2, 29), time=dt.time(12), ts=dt.datetime(2020, 2, 29, 1),
         tz=dt.datetime(2020, 2, 29, tzinfo=UTC), s="日本語日本語日本語日本語日本語日本語", u=b"\x80" * 16, fix=b"abc", bin=b"", list=[9], map=[("c", 2)], st=dict(x=-5, y="z")),
]


def arrow_schema(ids=True):
    def field(f):
        return pa.field(f.name, typ(f.field_type), nullable=not f.required, metadata={"PARQUET:field_id": str(f.field_id)} if ids else None)

    def typ(x):
        if isinstance(x, t.StructType):
            return pa.struct([field(f) for f in x.fields])
        if isinstance(x, t.ListType):
            return pa.list_(field(x.element_field))
        if isinstance(x, t.MapType):
            return pa.map_(field(x.key_field), field(x.value_field))
        return {
            "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "date": pa.date32(),
            "time": pa.time64("us"), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"), "string": pa.string(),
            "uuid": pa.binary(16), "fixed[3]": pa.binary(3), "binary": pa.binary(),
        }.get(str(x)) or pa.decimal128(x.precision, x.scale)

    return pa.schema([field(f) for f in SCHEMA.fields])


EXPECTED = {"schema": json.loads(SCHEMA.model_dump_json()), "iceberg": {}, "delta": {}}


def golden(name, table, **options):
    """A file of pyarrow that fits the table, and what PyIceberg derives from it."""
    pq.write_table(table, name, **options)
    meta = pq.read_metadata(name)
    s = data_file_statistics_from_parquet_metadata(meta, compute_statistics_plan(SCHEMA, {}), parquet_path_to_id_mapping(SCHEMA))
    text = lambda m: {str(k): base64.b64encode(v).decode() for k, v in m.items()}
    EXPECTED["iceberg"][name] = dict(
        rows=meta.num_rows, column_sizes=s.column_sizes, value_counts=s.value_counts, null_counts=s.null_value_counts,
        lower=text({k: v.min_as_bytes() for k, v in s.column_aggregates.items() if v.min_as_bytes() is not None}),
        upper=text({k: v.max_as_bytes() for k, v in s.column_aggregates.items() if v.max_as_bytes() is not None}), split_offsets=s.split_offsets)


WITH_IDS = pa.Table.from_pylist(ROWS, schema=arrow_schema())
golden("pyarrow.parquet", WITH_IDS)
golden("pyarrow_groups.parquet", WITH_IDS, row_group_size=1, data_page_version="2.0", store_decimal_as_integer=True, compression="zstd")
golden("pyarrow_nostats.parquet", WITH_IDS, write_statistics=False, compression="none")
# Files that don't fit the table, or only with a name mapping.
pq.write_table(pa.Table.from_pylist(ROWS, schema=arrow_schema(ids=False)), "pyarrow_noids.parquet")
pq.write_table(WITH_IDS.slice(0, 0), "pyarrow_empty.parquet")


def one(name, column, typ, values, field_id=1, **options):
    schema = pa.schema([pa.field(column, typ, metadata={"PARQUET:field_id": str(field_id)})])
    pq.write_table(pa.Table.from_pydict({column: pa.array(values, typ)}, schema=schema), name, **options)


one("nan.parquet", "d", pa.float64(), [1.5, float("nan"), 0.0])
one("ns.parquet", "ts", pa.timestamp("ns"), [1, 2])
one("ms.parquet", "ts", pa.timestamp("ms"), [1, 2])
one("int96.parquet", "ts", pa.timestamp("us", "UTC"), [1, 2], use_deprecated_int96_timestamps=True)
one("uint32.parquet", "i", pa.uint32(), [1, 4294967295])
one("int8.parquet", "i", pa.int8(), [-1, 1])
one("legacy_v1.parquet", "i", pa.int32(), [3, 4], version="1.0")

con = duckdb.connect()
con.execute("SET TimeZone='UTC'")
con.execute("CREATE TABLE t AS SELECT * FROM WITH_IDS")
con.execute("""COPY (SELECT b, i, l, f, d, dec, big, date, time, ts, tz, s, list, map, st FROM t) TO 'duckdb.parquet'
    (FORMAT parquet, FIELD_IDS {b: 1, i: 2, l: 3, f: 4, d: 5, dec: 6, big: 7, date: 8, time: 9, ts: 10, tz: 11, s: 12,
        list: {__duckdb_field_id: 16, element: 17}, map: {__duckdb_field_id: 18, key: 19, value: 20}, st: {__duckdb_field_id: 21, x: 22, y: 23}})""")
con.execute("COPY (SELECT 'a' || repeat('x', 300) AS s UNION ALL SELECT repeat(chr(233), 200)) TO 'duckdb_long.parquet' (FORMAT parquet, FIELD_IDS {s: 1})")
con.execute("COPY (SELECT uuid AS u FROM (VALUES ('f1234567-89ab-cdef-0123-456789abcdef'::UUID), ('01234567-89ab-cdef-0123-456789abcdef'::UUID)) v(uuid)) "
            "TO 'duckdb_uuid.parquet' (FORMAT parquet, FIELD_IDS {u: 1})")

# The parquet crate of Rust, through delta-rs, whose log has statistics of its own.
with tempfile.TemporaryDirectory() as tmp:
    rows = pa.table({
        "id": pa.array([1, 2, None, 4], pa.int64()), "tiny": pa.array([1, -1, None, 3], pa.int8()),
        "s": ["x" * 40, "b", None, "日本語" * 20], "dec": pa.array([D("999999999999999999.99"), None, D("-1.50"), D("0")], pa.decimal128(20, 2)),
        "date": pa.array([dt.date(2020, 1, 1), None, dt.date(1960, 1, 1), dt.date(2024, 2, 29)]),
        "at": pa.array([dt.datetime(2020, 1, 1, 0, 0, 0, 123456, UTC), None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2001, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "d": [1.5, None, -2.0, 3.25], "st": [dict(x=1, y="q"), None, dict(x=None, y="r"), dict(x=3, y=None)],
        "p": ["a/b", "a/b", "a/b", "a/b"],
    })
    deltalake.write_deltalake(tmp, rows, partition_by=["p"])
    table = deltalake.DeltaTable(tmp)
    log = [json.loads(line) for line in open(os.path.join(tmp, "_delta_log", "00000000000000000000.json"))]
    add = next(a["add"] for a in log if "add" in a)
    os.replace(os.path.join(tmp, next(p for p in [add["path"].replace("%25", "%"), add["path"]] if os.path.exists(os.path.join(tmp, p)))), "delta_rs.parquet")
    EXPECTED["delta"] = dict(schema=next(a["metaData"]["schemaString"] for a in log if "metaData" in a), stats=json.loads(add["stats"], parse_float=str))

with open("expected.json", "w") as f:
    json.dump(EXPECTED, f, indent=1, sort_keys=True)
    f.write("\n")
