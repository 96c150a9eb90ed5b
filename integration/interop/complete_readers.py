"""Reads the tables of complete_manifests.py with PyIceberg, delta-rs and DuckDB, and compares rows, statistics and filters with what the rows say.

usage: complete_readers.py CATALOG_DB WAREHOUSE WORK TABLE…; those of Delta begin with delta_
"""
import datetime
import math
import os
import re
import sys

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.types import DateType, PrimitiveType, TimestampType

import delta_readers
import readers
from complete_manifests import CUT, EPOCH, ROWS
from readers import Differs, extension

DELTA_CUT = 32  # characters that Firn keeps of a text

# As delta_readers has it of by_decimal: delta-rs 1.6.6 makes "-19999999999999.-99" of a partition value.
delta_readers.NO_DATASET["delta_amount"] = "it writes negative decimals wrong"

readers.FILTERS_PER_COLUMN = 4


def want_equal(what, got, want):
    if got != want:
        raise Differs(f"{what} is {got!r}, want {want!r}")


def real(values):
    """The values that bounds are of: no nulls, no NaN."""
    return [v for v in values if v is not None and v == v]


def check_bounds(what, low, high, values):
    """Bounds are the least and the greatest value; of a long text or binary, what it begins with and the next one above that."""
    values = real(values)
    if not values:
        want_equal(f"{what}: bounds", (low, high), (None, None))
        return
    least, greatest = min(values), max(values)
    if isinstance(least, (str, bytes)):
        want_equal(f"{what}: lower", low, least[:CUT])
        # Above the value and not by much; none where no short one is.
        if high is None and not (isinstance(greatest, bytes) and greatest[:CUT] == b"\xff" * CUT):
            raise Differs(f"{what}: no upper bound of {greatest!r}")
        if high is not None and not (greatest <= high and len(high) <= CUT and high[: len(high) - 1] == greatest[: len(high) - 1]):
            raise Differs(f"{what}: upper is {high!r}, and there is {greatest!r}")
        return
    want_equal(f"{what}: bounds", (low, high), (least, greatest))


def inside(rows, path):
    """A column, or a field of a struct, with null where the struct is null."""
    column = rows[path[0]].combine_chunks()
    return pc.struct_field(column, list(path[1:])).to_pylist() if path[1:] else column.to_pylist()


def readable(typ, bound):
    """A bound as PyIceberg reads it, in the types that pyarrow gives."""
    v = from_bytes(typ, bound)
    if isinstance(typ, TimestampType):
        return EPOCH + datetime.timedelta(microseconds=v)
    return EPOCH.date() + datetime.timedelta(days=v) if isinstance(typ, DateType) else v


def check_iceberg_files(tbl):
    """Every file's statistics against its rows; which file has which is read from the metadata."""
    paths = {f.field_id: f.name for f in tbl.schema().fields if isinstance(f.field_type, PrimitiveType)}
    place = tbl.schema().find_field("place")
    paths |= {f.field_id: f"place.{f.name}" for f in place.field_type.fields}
    element = tbl.schema().find_field("tags").field_type.element_id
    files = tbl.inspect.files().to_pylist()
    for f in files:
        path = f["file_path"].removeprefix("file://")
        rows, footer = pq.ParquetFile(path).read(), pq.read_metadata(path)
        want_equal("rows and size", (f["record_count"], f["file_size_in_bytes"]), (rows.num_rows, os.path.getsize(path)))
        sizes = {}
        for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
            for column in (group.column(i) for i in range(group.num_columns)):
                sizes[column.path_in_schema] = sizes.get(column.path_in_schema, 0) + column.total_compressed_size
        have = {name: dict(f[name]) for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")}
        want_equal("column sizes", have["column_sizes"], {i: sizes[p] for i, p in paths.items()} | {element: sizes["tags.list.element"]})
        want_equal("value counts", have["value_counts"], dict.fromkeys(paths, rows.num_rows))
        for number, name in paths.items():
            values, typ = inside(rows, name.split(".")), tbl.schema().find_type(name)
            want_equal(f"{name}: nulls", have["null_value_counts"][number], values.count(None))
            nans = sum(isinstance(v, float) and math.isnan(v) for v in values)
            want_equal(f"{name}: NaNs", have["nan_value_counts"].get(number), nans if name == "x" else None)
            low, high = (bounds.get(number) for bounds in (dict(f["lower_bounds"]), dict(f["upper_bounds"])))
            check_bounds(f"{name} of {path}", *(None if b is None else readable(typ, b) for b in (low, high)), values)
    want_equal("rows", sum(f["record_count"] for f in files), ROWS.num_rows)
    return len(files)


def check_sums(what, rows):
    for name in ("id", "n", "amount"):
        want_equal(f"{what}: sum of {name}", pc.sum(rows[name]).as_py(), pc.sum(ROWS[name]).as_py())
    want_equal(f"{what}: rows", rows.num_rows, ROWS.num_rows)


def iceberg(catalog, con, name, _):
    tbl = catalog.load_table(f"complete.{name}")
    full, fields = tbl.scan().to_arrow(), tbl.schema().fields
    check_sums("PyIceberg", full)
    readers.same("PyIceberg", readers.rows(full, fields), readers.rows(ROWS, fields))
    duck = con.execute(f"SELECT * FROM iceberg_scan('{tbl.metadata_location}')").to_arrow_table()
    readers.same("DuckDB", readers.rows(duck, fields), readers.rows(ROWS, fields))
    files = check_iceberg_files(tbl)
    filters = readers.check_filters(tbl, con, full, tbl.schema().find_field("id"))
    readers.check_pruning(tbl)
    # By bounds alone: nothing is partitioned by id.
    asked = f"id >= {ROWS['id'][100].as_py()}"
    read = len(list(tbl.scan(row_filter=asked).plan_files()))
    if not 0 < read < files:
        raise Differs(f"{asked} reads {read} of {files} files")
    return f"{files} files, {filters} filters"


def check_delta_files(dt):
    """Every file's statistics against its rows."""
    adds = pa.table(dt.get_add_actions(flatten=True)).to_pylist()
    inside_files = [c for c in ROWS.column_names if f"partition.{c}" not in adds[0]]
    leaves = [p for c in inside_files for p in ([c] if c != "place" else ["place.zip", "place.city"])]
    for add in adds:
        rows = pq.ParquetFile(os.path.join(dt.table_uri.removeprefix("file://"), add["path"])).read()
        want_equal("rows and size", (add["num_records"], rows.column_names), (rows.num_rows, inside_files))
        for name in leaves:
            values = inside(rows, name.split("."))
            want_equal(f"{name} of {add['path']}: nulls", add.get(f"null_count.{name}"), values.count(None))
            low, high = add.get(f"min.{name}"), add.get(f"max.{name}")
            check_delta_bounds(f"{name} of {add['path']}", low, high, values)
    want_equal("rows", sum(add["num_records"] for add in adds), ROWS.num_rows)
    return len(adds)


def check_delta_bounds(what, low, high, values):
    """As Delta has them: none of booleans, binaries, lists and infinities, times in milliseconds that lie around them, nothing above NaN, texts cut by Firn."""
    nan, values = any(v != v for v in values if v is not None), real(values)
    if not values or isinstance(values[0], (bool, bytes, list)):
        want_equal(f"{what}: bounds", (low, high), (None, None))
        return
    least, greatest = min(values), max(values)
    if isinstance(least, datetime.datetime):
        least -= datetime.timedelta(microseconds=least.microsecond % 1000)
        greatest += datetime.timedelta(microseconds=-greatest.microsecond % 1000)
    if isinstance(greatest, float) and (nan or math.isinf(greatest)):
        greatest = None
    if isinstance(least, str):
        want_equal(f"{what}: lower", low, least[:DELTA_CUT])
        if not (greatest <= high and high[:DELTA_CUT] == greatest[:DELTA_CUT]):
            raise Differs(f"{what}: upper is {high!r}, and there is {greatest!r}")
        return
    want_equal(f"{what}: bounds", (low, high), (least, greatest))


def delta(_, con, name, place):
    warehouse, work = place
    dirs = [d for d in os.listdir(os.path.join(warehouse, "complete")) if re.fullmatch(name + "-[0-9a-f]{8}", d)]
    path = os.path.join(warehouse, "complete", dirs[0])
    dt = DeltaTable(path)
    check_sums("delta-rs", pa.table(QueryBuilder().register("t", dt).execute("SELECT * FROM t").read_all()))
    truth = os.path.join(work, "truth.parquet")
    pq.write_table(ROWS, truth)
    want = f"read_parquet('{truth}')"
    asked = {where: con.execute(f"SELECT count(*) FROM {want} WHERE {where}").fetchone()[0] for *_, where in delta_readers.predicates(con, want)}
    kernel = delta_readers.check_kernel(con, path, want, asked)
    rs = delta_readers.check_delta_rs(con, name, dt, want, asked)
    files = check_delta_files(dt)
    return f"{files} files, {kernel} filters by the kernel, {rs} by delta-rs"


def main(db, warehouse, work, *tables):
    catalog = SqlCatalog("lake", uri=f"sqlite:///{db}", warehouse=f"file://{warehouse}")
    con = duckdb.connect()
    for package in ("avro", "iceberg", "delta"):
        con.execute(f"LOAD '{extension(package)}'")
    con.execute("SET TimeZone = 'UTC'; SET unsafe_enable_version_guessing = true")
    bad = 0
    for name in tables:
        try:
            print(f"ok   {name}: {(delta if name.startswith('delta_') else iceberg)(catalog, con, name, (warehouse, work))}")
        except Exception as e:  # every table is tried
            bad += 1
            print(f"FAIL {name}: {type(e).__name__}: {str(e)[:1500]}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
