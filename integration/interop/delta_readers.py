"""Reads every Delta table of a Firn warehouse with delta-rs and with the Delta kernel (DuckDB's delta extension) and compares.

usage: delta_readers.py truth SUITE_SQL WORK
       delta_readers.py check WAREHOUSE WORK

truth runs the suite's statements in plain DuckDB and leaves in WORK, for each table, its rows as Parquet, and in ask.sql what Firn
is asked: for the rows that it has and the truth doesn't and the other way round, the history, and the count of each filter. check
reads the answers from WORK/ask.jsonl, and the tables from the warehouse.
For every table: all readers give the truth's rows, delta-rs has Firn's schema and history, and every filter on every partition column
and column with statistics gives what it gives over the truth. Prints one line a table and fails at the end if any differed.
"""
import datetime
import json
import os
import re
import sys

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder

from readers import Differs, extension

BIG = 100_000  # rows from which on a table is asked less

# Tables that delta-rs 1.6.6 doesn't show as an Arrow dataset; DataFusion in it reads them.
NO_DATASET = {
    "by_decimal": "it writes a decimal between -1 and 0 as 0.-1",
    "vectors": "it shows no table with the feature deletionVectors, although none is there",
}


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def text(v):
    return "'" + v.replace("'", "''") + "'"


def run_truth(suite):
    """The suite's tables in plain DuckDB, and their partition columns."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; ATTACH ':memory:' AS lake")
    parts = {}
    for m in re.finditer(r"CREATE TABLE lake\.dsuite\.(\w+) [^;]*?USING delta(?: PARTITIONED BY \(([^)]*)\))?", suite):
        parts[m.group(1)] = [c.strip().strip('"') for c in (m.group(2) or "").split(",") if c.strip()]
    con.execute(re.sub(r"\) USING delta[^;]*;", ");", suite.replace("CREATE NAMESPACE", "CREATE SCHEMA")))
    for table, columns in parts.items():
        for c in columns:
            if con.execute(f"SELECT typeof({quoted(c)}) FROM lake.dsuite.{table}").fetchone() == ("VARCHAR",):
                con.execute(f"UPDATE lake.dsuite.{table} SET {quoted(c)} = nullif({quoted(c)}, '')")  # Delta has no empty text there
    return con, parts


def predicates(con, table):
    """(column, operator, DuckDB's text of the value, predicate) for the values worth asking for of each column, or field of a struct."""
    out = []
    big = con.execute(f"SELECT count(*) FROM {table}").fetchone()[0] >= BIG
    for path, typ in leaves(con.execute(f"SELECT * FROM {table} LIMIT 0").to_arrow_table().schema):
        column = ".".join(quoted(p) for p in path)
        out += [(path, "null", None, f"{column} IS NULL"), (path, "not null", None, f"{column} IS NOT NULL")]
        values = con.execute(f"SELECT v::VARCHAR, typeof(v) FROM (SELECT DISTINCT {column} AS v FROM {table} WHERE v IS NOT NULL) ORDER BY v").fetchall()
        step = max(1, len(values) // (1 if big else 6))
        for value, duck in dict.fromkeys(values[::step] + values[-1:]):
            for op in ("=", ">=") if big else ("=", "<", ">=", "<>"):
                # Engines differ in where NaN stands, so it is only asked for by itself.
                nan = pa.types.is_floating(typ)
                if nan and (value == "nan" or op == "<>"):
                    continue
                out.append((path, op, value, f"{column} {op} {text(value)}::{duck}" + (f" AND NOT isnan({column})" if nan else "")))
    return out


def leaves(schema):
    for f in schema:
        yield from leaf((f.name,), f.type)


def leaf(path, typ):
    if pa.types.is_struct(typ):
        for f in typ:
            yield from leaf((*path, f.name), f.type)
    elif not pa.types.is_nested(typ):
        yield path, typ


def truth(suite_path, work):
    with open(suite_path) as f:
        con, parts = run_truth(f.read())
    with open(os.path.join(work, "parts.json"), "w") as f:
        json.dump(parts, f)
    asked = []  # (table, what, answer)
    with open(os.path.join(work, "ask.sql"), "w") as ask:
        for table in parts:
            name = f"lake.dsuite.{table}"
            path = os.path.join(work, table + ".parquet")
            con.execute(f"COPY {name} TO {text(path)}")
            want = f"read_parquet({text(path)})"
            rows = con.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            if rows < BIG:
                for a, b in ((name, want), (want, name)):
                    ask.write(f"SELECT count(*) AS n FROM (SELECT * FROM (SELECT * FROM {a}) EXCEPT ALL SELECT * FROM {b});\n")
                    asked.append((table, "rows of " + a, 0))
            ask.write(f"DESCRIBE HISTORY {name};\n")
            asked.append((table, "history", None))
            for _, _, _, where in predicates(con, name):
                ask.write(f"SELECT count(*) AS n FROM {name} WHERE {where};\n")
                asked.append((table, where, con.execute(f"SELECT count(*) FROM {name} WHERE {where}").fetchone()[0]))
    with open(os.path.join(work, "asked.json"), "w") as f:
        json.dump(asked, f)
    print(f"{len(parts)} tables, {len(asked)} questions")


def same_rows(con, what, got, want):
    for a, b, missing in ((got, want, "too many"), (want, got, "missing")):
        rows = con.execute(f"SELECT x::VARCHAR FROM (SELECT * FROM {a} EXCEPT ALL SELECT * FROM {b}) x").fetchall()
        if rows:
            raise Differs(f"{what}: {len(rows)} rows {missing}, such as {rows[0][0][:300]}")


def same(what, got, want):
    if got != want:
        raise Differs(f"{what}: {str(got)[:300]}, want {str(want)[:300]}")


def fusion_type(t):
    """A type's name as DataFusion's arrow_cast takes it."""
    if pa.types.is_timestamp(t):
        return "Timestamp(Microsecond, None)" if t.tz is None else 'Timestamp(Microsecond, Some("UTC"))'
    if pa.types.is_decimal(t):
        return f"Decimal128({t.precision}, {t.scale})"
    names = {pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64", pa.float32(): "Float32", pa.float64(): "Float64",
             pa.string(): "Utf8", pa.date32(): "Date32", pa.bool_(): "Boolean"}
    return names.get(t)


def holes(dt):
    """Columns of which some file has no bounds although it has values. As an Arrow dataset delta-rs 1.6.6 takes such a file for one without
    any value: a filter on the column loses its rows. Spark too writes no bounds of booleans, and nobody can write infinities."""
    adds = pa.table(dt.get_add_actions(flatten=True))
    out = set()
    for name in adds.column_names:
        if name.startswith("null_count."):
            column = name.removeprefix("null_count.")
            bounds = [adds.column(b + column).to_pylist() if b + column in adds.column_names else [None] * len(adds) for b in ("min.", "max.")]
            values = zip(adds.column("num_records").to_pylist(), adds.column(name).to_pylist(), *bounds)
            if any(nulls != n and (low is None or high is None) for n, nulls, low, high in values):
                out.add(column)
    return out


def literal(typ, value):
    """A value's text as one of DataFusion; None for types that it can't cast a text to."""
    if pa.types.is_timestamp(typ):
        name = "Timestamp(Microsecond, None)" if typ.tz is None else 'Timestamp(Microsecond, Some("UTC"))'
        value = re.sub(r"\+00$", "Z", value)
    elif pa.types.is_decimal(typ):
        name = f"Decimal128({typ.precision}, {typ.scale})"
    else:
        name = {pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64", pa.float32(): "Float32", pa.float64(): "Float64",
                pa.string(): "Utf8", pa.date32(): "Date32", pa.bool_(): "Boolean"}.get(typ)
    return name and f"arrow_cast({text(value)}, '{name}')"


def arrow_filter(con, want, typ, path, op, value, where):
    field = ds.field(*path)
    if value is None:
        return field.is_null() if op == "null" else ~field.is_null()
    column = ".".join(quoted(p) for p in path)
    equal = where.replace(f" {op} ", " = ", 1)
    v = con.execute(f"SELECT {column} FROM {want} WHERE {equal} LIMIT 1").to_arrow_table().column(0).cast(typ)[0]
    out = {"=": field == v, "<": field < v, ">=": field >= v, "<>": field != v}[op]
    return out & ~pc.is_nan(field) if pa.types.is_floating(typ) else out


def check_delta_rs(con, table, dt, want, asked):
    """Rows, types and filters of delta-rs: by DataFusion, and as an Arrow dataset with the log's partition values and statistics."""
    fusion = QueryBuilder().register("t", dt)
    data = None if table in NO_DATASET else dt.to_pyarrow_dataset()
    ways = {"DataFusion": pa.table(fusion.execute("SELECT * FROM t").read_all())}
    if data is not None:
        ways["Arrow"] = data.to_table()
    for way, rows in ways.items():
        con.register("rows", rows)
        check_rows(con, f"delta-rs, {way}", "rows", want)
        con.unregister("rows")
    without = holes(dt)
    types = dict(leaves(ways["DataFusion"].schema if data is None else data.schema))
    n = 0
    for path, op, value, where in predicates(con, want):
        if data is not None and ".".join(path) not in without:
            got = data.count_rows(filter=arrow_filter(con, want, types[path], path, op, value, where))
            same(f"delta-rs, Arrow: {where}", got, asked[where])
            n += 1
        cast = value and literal(types[path], value)
        if len(path) == 1 and (value is None or cast):
            column = quoted(path[0])
            sql = f"{column} IS {op}" if value is None else f"{column} {op} {cast}"
            if value is not None and pa.types.is_floating(types[path]):
                sql += f" AND NOT isnan({column})"
            got = pa.table(fusion.execute(f"SELECT count(*) AS n FROM t WHERE {sql}").read_all()).column(0)[0].as_py()
            same(f"delta-rs, DataFusion: {where}", got, asked[where])
            n += 1
    return n


def check_rows(con, what, got, want):
    names = [con.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {t})").fetchall() for t in (got, want)]
    same(f"{what}: columns", *names)
    count = con.execute(f"SELECT count(*) FROM {want}").fetchone()[0]
    same(f"{what}: rows", con.execute(f"SELECT count(*) FROM {got}").fetchone()[0], count)
    if count < BIG:
        same_rows(con, what, got, want)


def check_kernel(con, path, want, asked):
    scan = f"delta_scan({text(path)})"
    check_rows(con, "the kernel", scan, want)
    for where, answer in asked.items():
        same(f"the kernel: {where}", con.execute(f"SELECT count(*) FROM {scan} WHERE {where}").fetchone()[0], answer)
    return len(asked)


def check_history(dt, firn):
    theirs = [(h["version"], h["operation"], h.get("engineInfo"), h["timestamp"]) for h in dt.history()]
    ours = [(h["version"], h["operation"], h["engine"], int(datetime.datetime.fromisoformat(h["timestamp"]).timestamp() * 1000 + 0.5)) for h in firn]
    same("history", theirs, ours)


def check(warehouse, work):
    with open(os.path.join(work, "parts.json")) as f:
        parts = json.load(f)
    with open(os.path.join(work, "asked.json")) as f:
        asked = json.load(f)
    with open(os.path.join(work, "ask.jsonl")) as f:
        answers = [json.loads(line) for line in f]
    if len(asked) != len(answers):
        raise Differs(f"{len(answers)} answers to {len(asked)} questions")
    con = duckdb.connect()
    con.execute(f"LOAD '{extension('delta')}'; SET TimeZone = 'UTC'")
    bad = 0
    for table, columns in parts.items():
        dirs = [d for d in os.listdir(os.path.join(warehouse, "dsuite")) if re.fullmatch(table + "-[0-9a-f]{8}", d)]
        path = os.path.join(warehouse, "dsuite", dirs[0])
        want = f"read_parquet({text(os.path.join(work, table + '.parquet'))})"
        try:
            wants, history = {}, None
            for (t, what, answer), got in zip(asked, answers):
                if t != table:
                    continue
                if what == "history":
                    history = got
                    continue
                same(f"Firn: {what}", got[0]["n"], answer)
                if not what.startswith("rows of "):
                    wants[what] = answer
            dt = DeltaTable(path)
            same("partition columns", dt.metadata().partition_columns, columns)
            check_history(dt, history)
            n = check_kernel(con, path, want, wants)
            m = check_delta_rs(con, table, dt, want, wants)
            print(f"ok   {table}: {n} filters by Firn and by the kernel, {m} by delta-rs")
        except Exception as e:  # every table is tried
            bad += 1
            print(f"FAIL {table}: {type(e).__name__}: {str(e)[:1000]}")
    print(f"{len(parts) - bad} passed, {bad} failed")
    sys.exit(1 if bad or not parts else 0)


if __name__ == "__main__":
    {"truth": truth, "check": check}[sys.argv[1]](*sys.argv[2:])
