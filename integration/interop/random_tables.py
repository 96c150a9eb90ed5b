"""Random tables for Firn, and what must be in them.

usage: random_tables.py make SEED COUNT DIR
       random_tables.py check SEED COUNT DIR CATALOG_DB WAREHOUSE FIRN_DIR

make leaves in DIR the statements for Firn (fill.sql) with their source files, and ask.sql, which
asks Firn for the rows and for what filters give. check compares, for each table, three readers with plain DuckDB over the
sources: PyIceberg, DuckDB's iceberg extension, and Firn, whose answers to ask.sql are the lines of FIRN_DIR/ask.jsonl. Then it
compares the metadata of every data file with the file. Everything follows from SEED.
"""
import datetime
import decimal
import json
import math
import os
import random
import sys
import uuid

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import expressions as ex
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType, StructType

import readers

TEXTS = ["", " ", "a", "A", "null", "NULL", "NaN", "a/b=c%20d", "..", "ünïcødé 雪 ❄", "😀😀😀😀", "\U0010ffff" * 20, "z" * 300, "\ue000\U00010000", "tab\tquote'\"\\", "new\nline",
         "a" * 16, "a" * 15 + "\U0010ffff\U0010ffff", "\ud7ff" * 17, "e\u0301", "0", "-1"]
BLOBS = [b"", b"\x00", b"\xff" * 20, b"\xff" * 16, b"\x7f\xff" * 10, b"abc", b"\x00" * 40]
EPOCH = datetime.datetime(1970, 1, 1)
FILTERS_PER_COLUMN = 4
PRIMITIVES = ["boolean", "int", "bigint", "float", "double", "decimal(4,1)", "decimal(9,2)", "decimal(18,0)", "decimal(18,6)", "decimal(38,10)", "decimal(38,0)", "date", "time",
              "timestamp", "timestamptz", "varchar", "varchar", "uuid", "blob", "fixed(3)"]


def duck_type(t):
    """The type in DuckDB of a column declared as t in Firn."""
    return "blob" if t.startswith("fixed") else t


def value(r, t):
    """A SQL literal of the type: often one of the values on which writers go wrong."""
    if r.random() < 0.15:
        return "NULL"
    if t.endswith("[]"):
        items = [value(r, t[:-2]) for _ in range(r.choice([0, 0, 1, 2, 5]))]
        return f"[{', '.join(items)}]::{t}"
    if t.startswith("map("):
        k, v = t[4:-1].split(", ", 1)
        keys = list(dict.fromkeys(x for x in (value(r, k) for _ in range(r.choice([0, 1, 3]))) if x != "NULL"))
        return f"map {{{', '.join(f'{x}: {value(r, v)}' for x in keys)}}}::{t}" if keys else f"map([]::{k}[], []::{v}[])::{t}"
    if t.startswith("struct("):
        return "{" + ", ".join(f"'{n}': {value(r, ft)}" for n, ft in struct_fields(t)) + f"}}::{t}"
    nasty = r.random() < 0.4
    if t == "boolean":
        return r.choice(["true", "false"])
    if t in ("int", "bigint"):
        top = 2**31 if t == "int" else 2**63
        n = r.choice([0, -1, 1, top - 1, -top + 1000, 9, -10]) if nasty else r.randint(-50, 50) if r.random() < 0.5 else r.randint(-top + 1000, top - 1)
        return f"{n}::{t}"
    if t in ("float", "double"):
        if nasty:
            return f"'{r.choice(['nan', 'infinity', '-infinity', '0.0', '-0.0', '1.1754943508222875e-38', '-1.5', '3.4028234663852886e38'])}'::{t}"
        return f"'{r.randint(-1000, 1000) / 8}'::{t}"
    if t.startswith("decimal"):
        p, s = map(int, t[8:-1].split(","))
        n = r.choice([0, 1, -1, 10**p - 1, -(10**p) + 1000]) if nasty else r.randint(-(10 ** min(p, 6)) + 1000, 10 ** min(p, 6) - 1)
        return f"'{decimal.Decimal(n).scaleb(-s, decimal.Context(prec=60)):f}'::{t}"
    if t in ("date", "timestamp", "timestamptz"):
        if nasty:
            us = r.choice([0, -1, 1, -62135596800000000, 253402300799999999, -86400000000, 86399999999, -3600000001, 951782400000000])
        else:
            us = r.randint(-(10**14), 10**14) if r.random() < 0.5 else r.randint(-(10**16), 10**16)
        v = EPOCH + datetime.timedelta(microseconds=us)
        if t == "date":
            return f"'{v.date().isoformat()}'::date"
        return f"'{v.isoformat(sep=' ')}{'+00' if t == 'timestamptz' else ''}'::{t}"
    if t == "time":
        us = r.choice([0, 1, 86399999999]) if nasty else r.randint(0, 86399999999)
        return f"'{(EPOCH + datetime.timedelta(microseconds=us)).time().isoformat()}'::time"
    if t == "varchar":
        s = r.choice(TEXTS) if nasty else "".join(r.choice("abcé雪") for _ in range(r.randint(1, 24)))
        return "'" + s.replace("'", "''") + "'"
    if t == "uuid":
        n = r.choice([0, 2**128 - 1, 2**127, 2**127 - 1]) if nasty else r.getrandbits(128)
        h = f"{n:032x}"
        return f"'{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}'::uuid"
    if t == "blob" or t.startswith("fixed"):
        b = r.choice([b"\x00\x00\x00", b"\xff\xff\xff", b"abc"]) if t != "blob" else r.choice(BLOBS) if nasty else r.randbytes(r.randint(1, 30))
        return "'" + "".join(f"\\x{x:02X}" for x in b) + "'::blob"
    raise ValueError(t)


def struct_fields(t):
    out, depth, at = [], 0, 0
    body = t[7:-1]
    for i, c in enumerate(body + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            name, ft = body[at:i].strip().split(" ", 1)
            out.append((name, ft))
            at = i + 1
    return out


def nested(r, depth=2):
    leaf = lambda: nested(r, depth - 1) if depth > 1 and r.random() < 0.4 else r.choice(["int", "bigint", "varchar", "double", "decimal(9,2)", "timestamp", "date", "blob", "boolean"])
    kind = r.choice(["list", "map", "struct", "struct"])
    if kind == "list":
        return leaf() + "[]"
    if kind == "map":
        return f"map({r.choice(['int', 'varchar', 'date'])}, {leaf()})"
    return "struct(" + ", ".join(f"f{i} {leaf()}" for i in range(r.randint(1, 3))) + ")"


def transforms(t):
    """The partition transforms that take a type, with no more partitions than a test can bear."""
    out = ["{c}"]
    if t in ("int", "bigint", "varchar", "blob") or t.startswith("decimal"):
        out += ["truncate(7, {c})", "truncate(1, {c})"]
    if t not in ("boolean", "float", "double"):
        out += ["bucket(5, {c})", "bucket(1, {c})"]
    if t in ("date", "timestamp", "timestamptz"):
        out += ["year({c})", "month({c})", "day({c})"]
    if t in ("timestamp", "timestamptz"):
        out += ["hour({c})"]
    return out


class Table:
    """One random table: its columns, partition spec, properties, and source rows as SQL."""

    def __init__(self, seed, i):
        r = random.Random(f"{seed}/{i}")
        self.name = f"t{i}"
        self.columns = [("id", "bigint")]
        for j in range(r.randint(2, 8)):
            self.columns.append((r.choice([f"c{j}", f"C {j}", f"ключ{j}", f"a.b{j}"]) if r.random() < 0.2 else f"c{j}", nested(r) if r.random() < 0.25 else r.choice(PRIMITIVES)))
        plain = [(n, t) for n, t in self.columns[1:] if t in PRIMITIVES and "." not in n]
        self.spec = []
        for n, t in r.sample(plain, min(len(plain), r.choice([0, 1, 1, 2, 3]))):
            self.spec.append(r.choice(transforms(t)).format(c=quoted(n)))
        p = self.properties = {}
        if r.random() < 0.5:
            p["write.parquet.compression-codec"] = r.choice(["zstd", "gzip", "snappy", "uncompressed", "lz4_raw", "brotli"])
        if r.random() < 0.5:
            p["write.parquet.row-group-limit"] = r.choice(["1", "3", "50"])
        if r.random() < 0.3:
            p["write.target-file-size-bytes"] = r.choice(["1", "4096", "100000"])
        if r.random() < 0.5:
            p["write.metadata.metrics.default"] = r.choice(["none", "counts", "truncate(1)", "truncate(3)", "full"])
        if r.random() < 0.3:
            p["write.metadata.metrics.column." + self.columns[1][0]] = r.choice(["none", "counts", "truncate(2)", "full"])
        if r.random() < 0.3:
            p["write.parquet.parquet.enable.dictionary"] = r.choice(["true", "false"])
        if r.random() < 0.3:
            p["write.parquet.page-version"] = r.choice(["v1", "v2"])
        if r.random() < 0.3:
            p["write.parquet.page-row-limit"] = "2"
        if r.random() < 0.3:
            p["write.parquet.dict-size-bytes"] = "64"
        if r.random() < 0.3:
            p["write.distribution-mode"] = r.choice(["none", "hash"])
        if r.random() < 0.3:
            p["commit.manifest.target-size-bytes"] = "1000"
        self.parts = []  # (how, SQL of the rows)
        self.group = r.choice([None, 1, 7, 30])  # rows of a row group in a Parquet source; DuckDB's own have at least 2,048
        at = 0
        for _ in range(r.randint(1, 3)):
            n = r.choice([0, 1, 5, 40, 120])
            how = r.choice(["values", "parquet", "parquet", "json" if self.flat(15) else "parquet", "csv" if self.flat() else "values", "table"])
            self.parts.append((how if n else "parquet", [[f"{at + k}"] + [value(r, t) for _, t in self.columns[1:]] for k in range(n)]))
            at += n
        self.nulls(r)
        self.questions = list(self.ask(r))

    def nulls(self, r):
        """Makes a column all null, or all NaN, now and then."""
        for j, (_, t) in enumerate(self.columns[1:], 1):
            if r.random() < 0.1:
                only = "'nan'::" + t if t in ("float", "double") and r.random() < 0.7 else "NULL"
                for _, rows in self.parts:
                    for row in rows:
                        row[j] = only

    def flat(self, digits=38):
        """Whether text files can carry the rows. DuckDB reads decimals of JSON as floating-point numbers, so they have no more than 15 digits there."""
        wide = lambda t: t.startswith("decimal") and int(t[8:].split(",")[0]) > digits
        return all(t in PRIMITIVES and t not in ("blob", "fixed(3)", "varchar", "float", "double") and not wide(t) for _, t in self.columns)

    def ddl(self, declared=True):
        return "(" + ", ".join(f"{quoted(n)} {t if declared else duck_type(t)}" for n, t in self.columns) + ")"

    def source(self, con):
        """The rows as a DuckDB table of each part and one of all."""
        con.execute(f"CREATE OR REPLACE TABLE src {self.ddl(False)}")
        for k, (_, rows) in enumerate(self.parts):
            con.execute(f"CREATE OR REPLACE TABLE src{k} {self.ddl(False)}")
            if rows:
                con.execute(f"INSERT INTO src{k} VALUES " + ", ".join("(" + ", ".join(row) + ")" for row in rows))
            con.execute(f"INSERT INTO src FROM src{k}")

    def statements(self, con, dir):
        name = "lake.random." + self.name
        spec = f" PARTITIONED BY ({', '.join(self.spec)})" if self.spec else ""
        props = ", ".join(f"'{k}' = '{v}'" for k, v in self.properties.items())
        yield f"CREATE TABLE {name} {self.ddl()}{spec}" + (f" TBLPROPERTIES ({props})" if props else "")
        self.source(con)
        for k, (how, rows) in enumerate(self.parts):
            path = os.path.join(dir, f"{self.name}-{k}.{how}")
            types = "{" + ", ".join(f"'{n}': '{t}'" for n, t in self.columns) + "}"
            if how == "values":
                yield f"INSERT INTO {name} VALUES " + ", ".join("(" + ", ".join(row) + ")" for row in rows)
            elif how in ("parquet", "table"):
                path = path.replace(".table", ".parquet")
                con.execute(f"COPY src{k} TO '{path}' (FORMAT parquet)")
                if self.group:
                    pq.write_table(pq.read_table(path), path, row_group_size=self.group)
                if how == "table":
                    yield f"CREATE TABLE {name}_{k} {self.ddl()}"
                    yield f"INSERT INTO {name}_{k} SELECT * FROM read_parquet('{path}')"
                    yield f"INSERT INTO {name} SELECT * FROM {name}_{k}"
                else:
                    yield f"INSERT INTO {name} BY NAME SELECT * FROM read_parquet('{path}')"
            elif how == "csv":
                con.execute(f"COPY src{k} TO '{path}' (FORMAT csv, HEADER)")
                yield f"INSERT INTO {name} SELECT * FROM read_csv('{path}', header = true, auto_detect = false, columns = {types})"
            elif how == "json":
                con.execute(f"COPY src{k} TO '{path}' (FORMAT json)")
                yield f"INSERT INTO {name} SELECT * FROM read_json('{path}', columns = {types})"

    def ask(self, r):
        """Queries over the table ({t}) whose answers Firn and plain DuckDB must agree on."""
        columns = ", ".join(quoted(n) for n, _ in self.columns)
        yield f"SELECT id, md5(ROW({columns})::varchar) AS h FROM {{t}} ORDER BY id"
        for n, t in self.columns:
            if t not in PRIMITIVES:
                yield f"SELECT count({quoted(n)}) AS n FROM {{t}}"
                continue
            c, values = quoted(n), [row[[x for x, _ in self.columns].index(n)] for _, rows in self.parts for row in rows]
            yield f"SELECT count(*) AS n, count({c}) AS k, min({c})::varchar AS lo, max({c})::varchar AS hi FROM {{t}}"
            yield f"SELECT id FROM {{t}} WHERE {c} IS NULL ORDER BY id"
            for v in r.sample(values, min(3, len(values))):
                op = r.choice(["=", "<", ">=", "<>", "IS DISTINCT FROM"])
                yield f"SELECT id FROM {{t}} WHERE {c} {op} {v} ORDER BY id"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def tables(seed, count):
    return [Table(seed, i) for i in range(count)]


def connect():
    con = duckdb.connect()
    for package in ("avro", "iceberg"):
        con.execute(f"LOAD '{readers.extension(package)}'")
    con.execute("SET TimeZone = 'UTC'")
    return con


def make(seed, count, dir):
    con = connect()
    with open(os.path.join(dir, "fill.sql"), "w") as fill, open(os.path.join(dir, "ask.sql"), "w") as ask:
        fill.write("CREATE NAMESPACE lake.random;\n")
        for t in tables(seed, count):
            for s in t.statements(con, dir):
                fill.write(s + ";\n")
            for q in t.questions:
                ask.write(q.format(t="lake.random." + t.name) + ";\n")


def check_firn(t, con, answers):
    for q in t.questions:
        want = [tuple(row) for row in con.execute(q.format(t="src")).fetchall()]
        got = [tuple(row.values()) for row in json.loads(next(answers))]
        readers.same("Firn: " + q[:300], [tuple(map(str, row)) for row in got], [tuple(map(str, row)) for row in want])


def iceberg_rows(tbl, con):
    fields = tbl.schema().fields
    return readers.rows(con.execute(f"SELECT * FROM iceberg_scan('{tbl.metadata_location}')").to_arrow_table(), fields)


def check_table(t, tbl, con, answers):
    fields = tbl.schema().fields
    names = [f.name for f in fields]
    check_firn(t, con, answers)
    want = readers.rows(con.execute("FROM src").to_arrow_table(), fields)
    if tbl.current_snapshot() is None:
        readers.same("no snapshot", want, [])
        return 0
    full = con.execute("FROM src").to_arrow_table()
    # All rows: what pyarrow reads of the live files, so that no reader's fault with nested nulls hides Firn's.
    files = [task.file for task in tbl.scan().plan_files()]
    raw = [pq.read_table(f.file_path.removeprefix("file://"), partitioning=None) for f in files]
    if raw:
        readers.same("pyarrow", sorted((row for a in raw for row in readers.rows(a.select(names), fields)), key=repr), want)
    else:
        readers.same("no files", [], want)
    if con_iceberg(tbl):
        readers.same("DuckDB", iceberg_rows(tbl, con), want)
    n = check_filters(t, tbl, con, full)
    for f, a in zip(files, raw):
        check_file(tbl, f, a)
    check_snapshots(tbl)
    return n


def con_iceberg(tbl):
    """Whether DuckDB's extension can read the table: it fails on truncate of decimals."""
    return not any("decimal" in str(tbl.schema().find_field(f.source_id).field_type) and "truncate" in str(f.transform) for f in tbl.spec().fields)


def misread(tbl):
    """Columns that DuckDB's extension prunes wrongly: time transforms before 1970, and buckets of UUIDs."""
    source = lambda f: tbl.schema().find_field(f.source_id)
    bucket = lambda f: str(source(f).field_type) == "uuid" and "bucket" in str(f.transform)
    return {source(f).name for f in tbl.spec().fields if str(f.transform) in ("year", "month", "day", "hour") or bucket(f)}


def check_filters(t, tbl, con, full):
    n = 0
    ids = full.column("id").to_pylist()
    for f in tbl.schema().fields:
        if not isinstance(f.field_type, PrimitiveType) or "." in f.name:
            continue
        values = full.column(f.name).to_pylist()
        if str(f.field_type) == "uuid":
            values = [None if v is None else v if isinstance(v, uuid.UUID) else uuid.UUID(bytes=bytes(v)) if isinstance(v, bytes) else uuid.UUID(v) for v in values]
        asked = readers.filters(f.name, f.field_type, values)
        for expr, pred, py in random.Random(f"{t.name}/{f.name}").sample(asked, min(FILTERS_PER_COLUMN, len(asked))):
            want = sorted(i for i, v in zip(ids, values) if py(v))
            nan = not isinstance(expr, (ex.IsNull, ex.NotNull, ex.IsNaN))
            try:
                got = tbl.scan(row_filter=expr, selected_fields=("id", f.name)).to_arrow()
            except OverflowError:
                got = None  # PyIceberg steps to the day before the year 1 when it projects a filter
            if got is not None and readers.by_uuid(tbl, f, expr):
                got = None
            if got is not None:
                have = sorted(i for i, v in zip(got.column("id").to_pylist(), got.column(f.name).to_pylist()) if not (nan and isinstance(v, float) and math.isnan(v)))
                readers.same(f"PyIceberg {expr}", have, want)
            if con_iceberg(tbl) and f.name not in misread(tbl):
                have = [row[0] for row in con.execute(f"SELECT id FROM iceberg_scan('{tbl.metadata_location}') WHERE {pred} ORDER BY id").fetchall()]
                readers.same(f"DuckDB {pred}", have, want)
            n += 1
    return n


def leaf_values(arrow, schema):
    """(field id, type, values) of every primitive column outside lists and maps."""

    def walk(field, path):
        if isinstance(field.field_type, StructType):
            for child in field.field_type.fields:
                yield from walk(child, path + [child.name])
        elif isinstance(field.field_type, PrimitiveType):
            yield field, path

    for top in schema.fields:
        for field, path in walk(top, [top.name]):
            values = arrow.column(path[0]).to_pylist()
            for name in path[1:]:
                values = [None if v is None else v[name] for v in values]
            yield field, values


def comparable(v, typ):
    """A value in an order that Iceberg's bounds have: bytes for strings and UUIDs."""
    if isinstance(v, str) and str(typ) == "string":
        return v.encode()
    if str(typ) == "uuid":
        return v.bytes if hasattr(v, "bytes") else bytes(v)
    return v


def bound(typ, raw):
    v = from_bytes(typ, raw)
    if str(typ) == "date" and isinstance(v, int):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=v)
    if str(typ) == "time":
        return (EPOCH + datetime.timedelta(microseconds=v)).time()
    if str(typ) == "timestamp":
        return EPOCH + datetime.timedelta(microseconds=v)
    if str(typ) == "timestamptz":
        return EPOCH.replace(tzinfo=datetime.timezone.utc) + datetime.timedelta(microseconds=v)
    return comparable(v, typ)


def mode(tbl, name):
    p = tbl.properties
    return p.get("write.metadata.metrics.column." + name, p.get("write.metadata.metrics.default", "truncate(16)"))


def check_file(tbl, f, arrow):
    """The entry of a data file against the file."""
    path = f.file_path.removeprefix("file://")
    meta = pq.read_metadata(path)
    say = lambda what, have, want: readers.same(f"{os.path.basename(path)}: {what}", [have], [want])
    say("record_count", f.record_count, meta.num_rows)
    say("file_size_in_bytes", f.file_size_in_bytes, os.path.getsize(path))
    starts = []
    for g in range(meta.num_row_groups):
        c = meta.row_group(g).column(0)
        starts.append(min(x for x in (c.data_page_offset, c.dictionary_page_offset) if x))
    say("split_offsets", list(f.split_offsets or []), starts)
    sizes = {}
    ids = column_ids(pq.ParquetFile(path).schema_arrow)
    for g in range(meta.num_row_groups):
        for c, id in enumerate(ids):
            sizes[id] = sizes.get(id, 0) + meta.row_group(g).column(c).total_compressed_size
    for id, size in (f.column_sizes or {}).items():
        say(f"column_sizes[{id}]", size, sizes[id])
    for field, values in leaf_values(arrow, tbl.schema()):
        m = mode(tbl, tbl.schema().find_column_name(field.field_id))
        have = {k: (getattr(f, k) or {}).get(field.field_id) for k in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")}
        if m == "none":
            say(f"metrics of {field.name}", have, dict.fromkeys(have))
            continue
        isfloat = str(field.field_type) in ("float", "double")
        nan = sum(1 for v in values if isinstance(v, float) and math.isnan(v))
        say(f"{field.name}: value_counts", have["value_counts"], len(values))
        say(f"{field.name}: null_value_counts", have["null_value_counts"], sum(v is None for v in values))
        say(f"{field.name}: nan_value_counts", have["nan_value_counts"], nan if isfloat else None)
        real = [comparable(v, field.field_type) for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
        lo, hi = have["lower_bounds"], have["upper_bounds"]
        if m == "counts" or not real:
            say(f"{field.name}: bounds", (lo, hi), (None, None))
            continue
        low = bound(field.field_type, lo)
        cut = m.startswith("truncate") and str(field.field_type) in ("string", "binary")
        if not cut:
            say(f"{field.name}: bounds", (readers.canon(low), readers.canon(bound(field.field_type, hi))), (readers.canon(min(real)), readers.canon(max(real))))
            continue
        length = int(m[9:-1])
        size = lambda b: len(b.decode()) if str(field.field_type) == "string" else len(b)
        if not (low <= min(real) and size(low) <= length and min(real).startswith(low)):
            raise readers.Differs(f"{field.name}: lower bound {low} of {min(real)}")
        if hi is None:
            # Only right when no text of the length is above: the prefix is all highest characters.
            head = max(real).decode()[:length] if str(field.field_type) == "string" else max(real)[:length]
            if set(head) - {"\U0010ffff", 255}:
                raise readers.Differs(f"{field.name}: no upper bound of {max(real)}")
            continue
        high = bound(field.field_type, hi)
        if not (high >= max(real) and size(high) <= length):
            raise readers.Differs(f"{field.name}: upper bound {high} of {max(real)}")


def column_ids(schema):
    """The field ids of a Parquet file's columns in their order."""

    def walk(field):
        t = field.type
        if pa.types.is_struct(t):
            for i in range(t.num_fields):
                yield from walk(t.field(i))
        elif pa.types.is_map(t):
            yield from walk(t.key_field)
            yield from walk(t.item_field)
        elif pa.types.is_list(t) or pa.types.is_large_list(t):
            yield from walk(t.value_field)
        else:
            yield int(field.metadata[b"PARQUET:field_id"])

    return [id for f in schema for id in walk(f)]


def check_snapshots(tbl):
    """Totals, sequence numbers and partition summaries over all commits."""
    io, records, files, size = tbl.io, 0, 0, 0
    parent = None
    meta = tbl.metadata
    readers.same("last-sequence-number", [meta.last_sequence_number], [len(meta.snapshots)])
    readers.same("snapshot log", [e.snapshot_id for e in meta.snapshot_log], [s.snapshot_id for s in meta.snapshots])
    readers.same("main", [meta.refs["main"].snapshot_id], [meta.current_snapshot_id])
    for seq, s in enumerate(meta.snapshots, 1):
        g = s.summary.additional_properties.get
        readers.same("sequence, parent and schema", [s.sequence_number, s.parent_snapshot_id, s.schema_id], [seq, parent, meta.current_schema_id])
        added = [e for m in s.manifests(io) if m.added_snapshot_id == s.snapshot_id for e in m.fetch_manifest_entry(io)]
        n, b = sum(e.data_file.record_count for e in added), sum(e.data_file.file_size_in_bytes for e in added)
        records, files, size = records + n, files + len(added), size + b
        have = [g(k) for k in ("added-records", "added-data-files", "added-files-size", "changed-partition-count", "total-records", "total-data-files", "total-files-size",
                               "total-delete-files", "total-position-deletes", "total-equality-deletes")]
        partitions = len({repr(e.data_file.partition) for e in added})
        readers.same("summary", have, [str(x) if x else None for x in (n, len(added), b, partitions)] + [str(x) for x in (records, files, size, 0, 0, 0)])
        for m in s.manifests(io):
            check_manifest(tbl, m, m.fetch_manifest_entry(io))
        parent = s.snapshot_id


def check_manifest(tbl, m, entries):
    readers.same("manifest counts", [m.added_files_count, m.added_rows_count, m.existing_files_count, m.deleted_files_count, m.manifest_length],
                 [len(entries), sum(e.data_file.record_count for e in entries), 0, 0, os.path.getsize(m.manifest_path.removeprefix("file://"))])
    for e in entries:
        readers.same("entry", [e.snapshot_id, e.sequence_number, e.file_sequence_number], [m.added_snapshot_id, m.sequence_number, m.sequence_number])
    spec = tbl.specs()[m.partition_spec_id]
    ptype = spec.partition_type(tbl.schema())
    for i, field in enumerate(ptype.fields):
        values = [e.data_file.partition[i] for e in entries]
        p = m.partitions[i]
        nan = [isinstance(v, float) and math.isnan(v) for v in values]
        isfloat = str(field.field_type) in ("float", "double")
        real = [comparable(v, field.field_type) for v, bad in zip(values, nan) if v is not None and not bad]
        readers.same(f"partition summary of {field.name}: contains_null, contains_nan", [p.contains_null, bool(p.contains_nan)], [None in values, any(nan)])
        have = [None if b is None else comparable(from_bytes(field.field_type, b), field.field_type) for b in (p.lower_bound, p.upper_bound)]
        readers.same(f"partition summary of {field.name}", [readers.canon(x) for x in have], [readers.canon(min(real)), readers.canon(max(real))] if real else [None, None])


def check(seed, count, dir, db, warehouse, firn):
    catalog = SqlCatalog("lake", uri=f"sqlite:///{db}", warehouse=f"file://{warehouse}")
    con = connect()
    with open(os.path.join(firn, "ask.jsonl")) as f:
        answers = list(f)
    bad = at = 0
    for t in tables(seed, count):
        t.source(con)
        try:
            n = check_table(t, catalog.load_table(("random", t.name)), con, iter(answers[at:]))
            print(f"ok   {t.name}: {n} filters, {t.spec}, {t.properties}")
        except Exception as e:  # every table is tried
            bad += 1
            print(f"FAIL {t.name}: {type(e).__name__}: {str(e)[:1500]}\n     {t.columns}\n     {t.spec}\n     {t.properties}")
        at += len(t.questions)
    print(f"{count - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    seed, count = int(sys.argv[2]), int(sys.argv[3])
    if sys.argv[1] == "make":
        make(seed, count, sys.argv[4])
    else:
        check(seed, count, *sys.argv[4:8])
