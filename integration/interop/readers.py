"""Reads every table of a Firn warehouse with PyIceberg and with DuckDB's iceberg extension and compares.

usage: readers.py CATALOG_DB WAREHOUSE FIRN_ROWS_DIR SUITE_SQL

FIRN_ROWS_DIR has, for each table, what Firn itself counts: NAMESPACE.TABLE.json, an object with "rows" and, for
integer columns, "sum_COLUMN". For each table: both readers give the same rows; counts and sums are Firn's; and for
every column with bounds and every partition column, each filter gives what the same filter gives over a full scan. The rows of
all_types are also those that plain DuckDB makes of the suite's own VALUES.
Prints one line a table and fails at the end if any differed.
"""
import datetime
import decimal
import json
import math
import os
import re
import sys
import uuid

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import expressions as ex
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import PrimitiveType, TimestampType, TimestamptzType

NAN = "NaN"
FILTERS_PER_COLUMN = 10

# Tables whose filters DuckDB 1.5.5 gets wrong, by its own fault: PyIceberg's answers to the same filters are right, and the
# partition values are those of the spec (floor, not truncation towards zero). Filters on these columns are counted, not compared.
BEFORE_1970 = "DuckDB's iceberg extension truncates time transforms towards zero before 1970 (duckdb-iceberg 1361), so pruning loses rows"
BUCKET_UUID = "DuckDB's iceberg extension hashes a UUID otherwise than the spec (its test vector: f79c3e09-677c-4bbd-a479-3f349cb785e7 is 1488055340)"
DUCKDB_DEFECTS = {
    "by_day_ts.k": BEFORE_1970,
    "by_day_tstz.k": BEFORE_1970,
    "by_month_ts.k": BEFORE_1970,
    "by_hour_ts.k": BEFORE_1970,
    "by_bucket_uuid.k": BUCKET_UUID,
    "by_truncate_decimal.k": "DuckDB's iceberg extension fails with an internal error on truncate of negative decimals",
}

# Columns that PyIceberg 0.12.0 reads wrong: it makes an empty list of a null list of structs. pyarrow reads the same file right, so its
# column is taken instead.
PYICEBERG_DEFECTS = {"all_types.nested"}


def by_uuid(tbl, field, expr):
    """Whether PyIceberg 0.12.0 loses rows by the filter: expression_evaluator(Schema(k uuid), EqualTo("k", u))(Record(u)) is False, since
    its literal is bytes and a partition's value, of fixed(16) with the logical type uuid as in the spec, is read as a UUID."""
    identity = any(p.source_id == field.field_id and str(p.transform) == "identity" for p in tbl.spec().fields)
    return str(field.field_type) == "uuid" and identity and not isinstance(expr, (ex.IsNull, ex.NotNull))


def canon(v):
    """One form for a value whichever reader it came from."""
    if v is None or isinstance(v, (bool, int, str)):
        return v
    if isinstance(v, float):
        return NAN if math.isnan(v) else v + 0.0
    if isinstance(v, decimal.Decimal):
        text = format(v, "f")
        return ("decimal", "0" if v == 0 else text.rstrip("0").rstrip(".") if "." in text else text)
    if isinstance(v, datetime.datetime):
        if v.tzinfo is not None:
            v = v.astimezone(datetime.timezone.utc)
        return ("ts", v.isoformat())
    if isinstance(v, (datetime.date, datetime.time)):
        return ("t", v.isoformat())
    if isinstance(v, uuid.UUID):
        return str(v)  # as DuckDB gives it inside nested values
    if isinstance(v, (bytes, bytearray, memoryview)):
        return ("bytes", bytes(v).hex())
    if isinstance(v, dict):
        return ("struct", tuple((k, canon(x)) for k, x in v.items()))
    if isinstance(v, (list, tuple)):
        if v and all(isinstance(x, tuple) and len(x) == 2 for x in v):
            return ("map", tuple(sorted(((canon(a), canon(b)) for a, b in v), key=repr)))
        return ("list", tuple(canon(x) for x in v))
    raise TypeError(f"no form for {type(v)}: {v!r}")


def column(arrow, name, typ):
    col = arrow.column(name)
    if pa.types.is_map(col.type):
        # Arrow and DuckDB differ in how they show an empty map and a null one.
        return [None if v is None else ("map", tuple(sorted(((canon(a), canon(b)) for a, b in v), key=repr))) for v in col.to_pylist()]
    if str(typ) == "uuid":
        return [v if v is None else str(v if isinstance(v, (str, uuid.UUID)) else uuid.UUID(bytes=bytes(v))) for v in col.to_pylist()]
    return [canon(v) for v in col.to_pylist()]


def rows(arrow, fields):
    return sorted(zip(*[column(arrow, f.name, f.field_type) for f in fields]), key=repr) if fields else []


class Differs(Exception):
    pass


def same(what, a, b):
    if a != b:
        only_a = [x for x in a if x not in b][:3]
        only_b = [x for x in b if x not in a][:3]
        raise Differs(f"{what}: {len(a)} rows against {len(b)}; only left {only_a}, only right {only_b}")


def duck_literal(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return f"{v}"
    if isinstance(v, float):
        return f"'{v}'::DOUBLE"
    if isinstance(v, decimal.Decimal):
        return f"{v}"
    if isinstance(v, datetime.datetime):
        if v.tzinfo is not None:
            return f"TIMESTAMPTZ '{v.astimezone(datetime.timezone.utc).isoformat(sep=' ')}'"
        return f"TIMESTAMP '{v.isoformat(sep=' ')}'"
    if isinstance(v, datetime.date):
        return f"DATE '{v.isoformat()}'"
    if isinstance(v, datetime.time):
        return f"TIME '{v.isoformat()}'"
    if isinstance(v, uuid.UUID):
        return f"UUID '{v}'"
    if isinstance(v, bytes):
        return "'" + "".join(f"\\x{b:02X}" for b in v) + "'::BLOB"
    return "'" + str(v).replace("'", "''") + "'"


def iceberg_literal(v, typ):
    if isinstance(typ, (TimestampType, TimestamptzType)):
        return v.isoformat()
    return v


def filters(name, typ, values):
    """(PyIceberg expression, DuckDB predicate, the same in Python) for every value worth asking for."""
    out = [(ex.IsNull(name), f'"{name}" IS NULL', lambda v: v is None), (ex.NotNull(name), f'"{name}" IS NOT NULL', lambda v: v is not None)]
    present = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
    if any(isinstance(v, float) for v in values):
        out.append((ex.IsNaN(name), f'isnan("{name}")', lambda v: v is not None and math.isnan(v)))
    if str(typ) == "float":
        # PyIceberg takes an infinite literal for one beyond the range of a float, so it finds nothing.
        present = [v for v in present if not math.isinf(v)]
    distinct = sorted(set(present), key=lambda v: (v.bytes if isinstance(v, uuid.UUID) else v))
    step = max(1, len(distinct) // FILTERS_PER_COLUMN)
    for v in distinct[::step] + distinct[-1:]:
        lit = iceberg_literal(v, typ)
        isnan = lambda x: isinstance(x, float) and math.isnan(x)
        out.append((ex.EqualTo(name, lit), f'"{name}" = {duck_literal(v)}', lambda x, v=v: x is not None and not isnan(x) and x == v))
        if isinstance(v, (bool, uuid.UUID)):
            continue
        # NaN sorts above everything in DuckDB and is undefined in Iceberg: range filters are compared without it.
        nonan = f' AND NOT isnan("{name}")' if isinstance(v, float) else ""
        out.append((ex.GreaterThanOrEqual(name, lit), f'"{name}" >= {duck_literal(v)}{nonan}', lambda x, v=v: x is not None and not isnan(x) and x >= v))
        out.append((ex.LessThan(name, lit), f'"{name}" < {duck_literal(v)}{nonan}', lambda x, v=v: x is not None and not isnan(x) and x < v))
    return out


def drop_nan(pairs):
    return [r for r in pairs if r[0] != NAN]


def check_filters(tbl, duck, full, key):
    """Every filter on every top-level primitive column against the full scan."""
    n = 0
    for f in tbl.schema().fields:
        if not isinstance(f.field_type, PrimitiveType):
            continue
        raw = full.column(f.name).to_pylist()
        if str(f.field_type) == "uuid":
            raw = [None if v is None else (v if isinstance(v, uuid.UUID) else uuid.UUID(bytes=bytes(v))) for v in raw]
        keys = column(full, key.name, key.field_type)
        for expr, pred, py in filters(f.name, f.field_type, raw):
            want = sorted(((canon(v), k) for v, k in zip(raw, keys) if py(v)), key=repr)
            if not by_uuid(tbl, f, expr):
                got = tbl.scan(row_filter=expr, selected_fields=tuple(dict.fromkeys((f.name, key.name)))).to_arrow()
                have = sorted(zip(column(got, f.name, f.field_type), column(got, key.name, key.field_type)), key=repr)
                if not isinstance(expr, (ex.IsNull, ex.NotNull, ex.IsNaN)):
                    have = drop_nan(have)
                same(f"PyIceberg {expr}", have, want)
            if duck is not None and f"{tbl.name()[-1]}.{f.name}" not in DUCKDB_DEFECTS:
                names = ", ".join(f'"{name}"' for name in dict.fromkeys((f.name, key.name)))
                got = duck.execute(f'SELECT {names} FROM iceberg_scan(\'{tbl.metadata_location}\') WHERE {pred}').to_arrow_table()
                have = sorted(zip(column(got, f.name, f.field_type), column(got, key.name, key.field_type)), key=repr)
                same(f"DuckDB {pred}", have, want)
            n += 1
    return n


def check_pruning(tbl):
    """A filter on a partition value must not read every file of a table with many partitions."""
    spec = tbl.spec()
    files = [t.file for t in tbl.scan().plan_files()]
    if not spec.fields or len(files) < 3:
        return
    pruned = False
    for field in spec.fields:
        source = tbl.schema().find_field(field.source_id)
        for v in sorted({v for v in tbl.scan().to_arrow().column(source.name).to_pylist() if v is not None and v == v}, key=repr)[:5]:
            got = list(tbl.scan(row_filter=ex.EqualTo(source.name, iceberg_literal(v, source.field_type))).plan_files())
            pruned = pruned or len(got) < len(files)
    if not pruned:
        raise Differs(f"no partition filter prunes any of {len(files)} files")


def read_full(tbl):
    """The whole table by PyIceberg, but for the columns that it's known to read wrong."""
    full = tbl.scan().to_arrow()
    for i, f in enumerate(full.column_names):
        if f"{tbl.name()[-1]}.{f}" in PYICEBERG_DEFECTS:
            files = [t.file.file_path.removeprefix("file://") for t in tbl.scan().plan_files()]
            full = full.set_column(i, f, pa.concat_tables([pq.read_table(p, columns=[f]) for p in files]).column(f))
    return full


def check_values(tbl, full, suite):
    """The rows of a table against what DuckDB makes of its VALUES in a table of its own."""
    name = tbl.name()[-1]
    create = re.search(rf"CREATE TABLE lake\.suite\.{name} (\(.*?\n\));", suite, re.S).group(1)
    values = re.search(rf"INSERT INTO lake\.suite\.{name} (VALUES.*?;\n)\n", suite, re.S).group(1)
    own = duckdb.connect()
    own.execute(f"SET TimeZone = 'UTC'; CREATE TABLE t {re.sub(r'fixed[(]4[)]', 'blob', create)}; INSERT INTO t {values}")
    same("the suite's own VALUES", rows(full, tbl.schema().fields), rows(own.execute("FROM t").to_arrow_table(), tbl.schema().fields))


def check(tbl, con, firn, suite):
    full = read_full(tbl)
    fields = tbl.schema().fields
    if tbl.name()[-1] == "all_types":
        check_values(tbl, full, suite)
    if full.num_rows != firn["rows"]:
        raise Differs(f"PyIceberg counts {full.num_rows} rows, Firn {firn['rows']}")
    for name, want in firn.items():
        if name.startswith("sum_"):
            have = sum(v for v in full.column(name[4:]).to_pylist() if v is not None)
            if have != int(want):
                raise Differs(f"{name}: PyIceberg {have}, Firn {want}")
    snap = tbl.current_snapshot()
    if snap is not None:
        total = int(snap.summary["total-records"])
        if total != full.num_rows:
            raise Differs(f"total-records says {total}, there are {full.num_rows}")
        live = list(tbl.scan().plan_files())
        if int(snap.summary["total-data-files"]) != len(live) or int(snap.summary["total-files-size"]) != sum(t.file.file_size_in_bytes for t in live):
            raise Differs(f"totals of the summary differ from {len(live)} live files")
        for t in live:
            if os.path.getsize(t.file.file_path.removeprefix("file://")) != t.file.file_size_in_bytes:
                raise Differs(f"{t.file.file_path} has another size than its manifest says")
    big = full.num_rows > 100_000
    if con is not None and snap is not None:
        got = con.execute(f"SELECT * FROM iceberg_scan('{tbl.metadata_location}')").to_arrow_table()
        if big:
            same("DuckDB count", [got.num_rows], [full.num_rows])
        else:
            same("DuckDB against PyIceberg", rows(got, fields), rows(full, fields))
    if big:
        return check_big(tbl, con, full)
    key = next((f for f in fields if f.name in ("n", "id")), fields[0])
    n = check_filters(tbl, con if snap is not None else None, full, key)
    check_pruning(tbl)
    return n


def check_big(tbl, con, full):
    """A large table by partitions: counts of each month against the full scan."""
    n = 0
    import pyarrow.compute as pc
    for field in tbl.spec().fields:
        source = tbl.schema().find_field(field.source_id)
        months = sorted({(v.year, v.month) for v in pc.unique(pc.floor_temporal(full.column(source.name), unit="month")).to_pylist()})
        for y, m in months:
            lo = datetime.datetime(y, m, 1)
            hi = datetime.datetime(y + m // 12, m % 12 + 1, 1)
            col = full.column(source.name)
            want = pc.sum(pc.and_(pc.greater_equal(col, pa.scalar(lo, col.type)), pc.less(col, pa.scalar(hi, col.type)))).as_py()
            expr = ex.And(ex.GreaterThanOrEqual(source.name, lo.isoformat()), ex.LessThan(source.name, hi.isoformat()))
            got = tbl.scan(row_filter=expr, selected_fields=(source.name,)).to_arrow().num_rows
            duck = con.execute(f"SELECT count(*) FROM iceberg_scan('{tbl.metadata_location}') WHERE \"{source.name}\" >= TIMESTAMP '{lo}' AND \"{source.name}\" < TIMESTAMP '{hi}'").fetchone()[0]
            if not want == got == duck:
                raise Differs(f"{y}-{m:02}: full scan {want}, PyIceberg {got}, DuckDB {duck}")
            n += 2
    return n


def main():
    db, warehouse, firn_dir, suite_file = sys.argv[1:5]
    with open(suite_file) as f:
        suite = f.read()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{db}", warehouse=f"file://{warehouse}")
    con = duckdb.connect()
    for package in ("avro", "iceberg"):
        con.execute(f"LOAD '{extension(package)}'")
    con.execute("SET TimeZone = 'UTC'; SET unsafe_enable_version_guessing = true")
    bad = tables = 0
    for ns in catalog.list_namespaces():
        for ident in catalog.list_tables(ns):
            tables += 1
            name = ".".join(ident)
            with open(os.path.join(firn_dir, name + ".json")) as f:
                firn = json.load(f)
            try:
                n = check(catalog.load_table(ident), con, firn, suite)
                print(f"ok   {name}: {firn['rows']} rows, {n} filters")
            except Exception as e:  # every table is tried
                bad += 1
                print(f"FAIL {name}: {type(e).__name__}: {str(e)[:1500]}")
    print(f"{tables - bad} passed, {bad} failed")
    sys.exit(1 if bad or not tables else 0)


def extension(name):
    """The path of an extension that a PyPI package carries."""
    module = __import__(f"duckdb_extension_{name}")
    for base, _, files in os.walk(os.path.dirname(module.__file__)):
        for f in files:
            if f == f"{name}.duckdb_extension":
                return os.path.join(base, f)
    raise FileNotFoundError(name)


if __name__ == "__main__":
    main()
