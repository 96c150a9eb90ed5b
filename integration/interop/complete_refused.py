"""Hands in complete manifests that contradict the table, the file or themselves, and goes on in the same write.

usage: complete_refused.py LOCATION ICEBERG_TABLE DELTA_TABLE

Each must be refused with words that say what is wrong and where. Prints what was said.
"""
import sys
import uuid

import pyarrow as pa
from complete_manifests import ROWS, manifest, write_files
from firn_writes import Firn, NotCommitted, WriteError


class Taken(Exception):
    """It wasn't refused, or not as it should be."""


def change(files, **fields):
    """The files of a manifest, of which the first says something else."""
    return [{**files[0], **fields}, *files[1:]]


def entry(files, column, number, value):
    """A change of one entry of a map."""
    return change(files, **{column: sorted({**dict(files[0][column]), number: value}.items())})


def partition(files, at, **fields):
    values = [dict(v) for v in files[0]["partition"]]
    values[at].update(fields)
    return change(files, partition=values)


def column(table, name, to):
    """The manifest with another column in the place of one; None for none."""
    i = table.schema.get_field_index(name)
    return table.remove_column(i) if to is None else table.set_column(i, pa.field(name, to.type, False), to)


def of_both(context, files):
    """Of each case its name, the manifest, and the words of the refusal."""
    good, first = manifest(context, files), files[0]
    yield "schema id", manifest(context, change(files, schema_id=context["schema_id"] + 1)), [first["path"], f"schema {context['schema_id'] + 1} ", f" of {context['schema_id']} "]
    yield "spec id", manifest(context, change(files, spec_id=context["spec_id"] + 1)), [first["path"], f"spec {context['spec_id'] + 1} ", f" and {context['spec_id']} "]
    yield "format", manifest(context, change(files, format="ORC")), [first["path"], '"ORC"']
    yield "attempt", manifest(context, change(files, attempt="another")), [first["path"], '"another"']
    yield "path", manifest(context, change(files, path=first["path"].replace("/task.", "/x/../task."))), ["/x/../", "steps up"]
    yield "name", manifest(context, change(files, path=first["path"].replace("/task.", "/other."))), ["/other.", first["attempt"]]
    yield "twice", manifest(context, [*files, first]), [first["path"], "twice"]
    yield "negative rows", manifest(context, change(files, rows=-1)), [first["path"], "-1 rows"]
    yield "no partition", manifest(context, change(files, partition=[])), [first["path"], "0 partition values"]
    yield "partition's id", manifest(context, partition(files, 0, field_id=77)), [first["path"], "77"]
    yield "split offsets", manifest(context, change(files, split_offsets=[4, first["size"] + 1])), [first["path"], f"offset {first['size'] + 1} "]
    yield "unordered offsets", manifest(context, change(files, split_offsets=[9, 4])), [first["path"], "split offsets don't ascend"]
    yield "too many nulls", manifest(context, entry(files, "null_counts", 1, first["rows"] + 1)), [first["path"], f"{first['rows'] + 1} nulls"]
    yield "a column that isn't there", manifest(context, entry(files, "lower", 99, b"1")), [first["path"], "99"]
    yield "nulls where none may be", manifest(context, entry(files, "null_counts", 1, 1)), [first["path"], "id", "1 nulls in a column that may not be null"]
    loose = pa.map_(pa.int32(), pa.int64())  # its items may be null
    yield "a map's items", column(good, "value_counts", pa.array(good["value_counts"].to_pylist(), loose)), ['column "value_counts"', "items_nullable"]
    yield "column type", column(good, "rows", good["rows"].cast(pa.int32())), ['column "rows"', "int32", "int64"]
    yield "large texts", column(good, "path", good["path"].cast(pa.large_string())), ['column "path"', "large_utf8", "utf8"]
    for name in ("size", "attempt", "split_offsets"):
        yield f"without {name}", column(good, name, None), [f'"{name}"']
    yield "a column more", good.append_column("note", pa.array(["x"] * good.num_rows)), ['"note"']
    yield "order of columns", good.select([*good.column_names[1:], "path"]), ['"path"', '"format"']
    yield "nulls", column(good, "size", pa.array([None] * good.num_rows, pa.int64())), ['"size"', "null at 0"]


def of_iceberg(context, files):
    first = files[0]
    yield "bound of another type", manifest(context, entry(files, "lower", 1, b"\x01\x00\x00\x00")), [first["path"], "column id", "4 bytes"]
    yield "bounds swapped", manifest(context, change(files, lower=first["upper"], upper=first["lower"])), [first["path"], "is above the upper bound"]
    yield "bound is NaN", manifest(context, entry(files, "upper", 3, b"\x00\x00\x00\x00\x00\x00\xf8\x7f")), [first["path"], "column x", "NaN"]
    yield "values aren't rows", manifest(context, entry(files, "value_counts", 2, first["rows"] + 1)), [first["path"], "column n", f"{first['rows'] + 1} values in {first['rows']} rows"]
    yield "NaNs of a text", manifest(context, entry(files, "nan_counts", 4, 1)), [first["path"], "column s", "NaN"]
    yield "partition of another type", manifest(context, partition(files, 0, value=b"\x01")), [first["path"], "d_month", "1 byte"]
    yield "partition isn't the rows'", manifest(context, partition(files, 0, value=b"\x63\x00\x00\x00")), [first["path"], "d_month", "99", "a bound of the column gives"]
    yield "partition is null", manifest(context, partition(files, 0, null=True)), [first["path"], "d_month", "null"]


def of_delta(context, files):
    first = files[0]
    yield "bound isn't JSON", manifest(context, entry(files, "lower", 1, b"\x01\x00\x00\x00\x00\x00\x00\x00")), [first["path"], '"id"', "no bound of type"]
    yield "bound of another type", manifest(context, entry(files, "lower", 1, b'"red"')), [first["path"], '"id"', "red"]
    yield "bounds swapped", manifest(context, entry(files, "lower", 1, b"9000000000000000000")), [first["path"], '"id"', "above the upper"]
    yield "partition of another type", manifest(context, partition(files, 1, null=False, value=b"1970-13-01")), [first["path"], '"d"', "1970-13-01"]


def said(what, e, words):
    """The refusal has all the words."""
    text = str(e)
    if missing := [w for w in words if w not in text]:
        raise Taken(f"{what}: nothing says {missing}: {text}")
    print(f"{what}: {text}")


def handing_in(driver, table, cases):
    """Everything is refused under one attempt, which hands the right manifest in after that."""
    write = driver.begin(table)
    worker, context = Firn(driver.location, write.context["worker_token"]), write.context
    attempt = f"task.{uuid.uuid4().hex}"
    files = sorted(write_files(context, attempt, ROWS), key=lambda f: -f["rows"])
    for make in (of_both, cases):
        for name, table, words in make(context, files):
            try:
                worker.hand_in(write.id, attempt, table)
            except WriteError as e:
                said(f"{context['format']}, {name}", e, words)
                if e.fault.get("code") != "FIRN-6043" or e.fault.get("outcome") != "none" or e.fault.get("retryable"):
                    raise Taken(f"{name}: {e.fault}") from e
            else:
                raise Taken(f"{context['format']}, {name}: it was taken")
    handle = worker.hand_in(write.id, attempt, manifest(context, files))
    if worker.hand_in(write.id, attempt, manifest(context, files[::-1])) != handle:
        raise Taken("the same content has another handle")
    try:
        worker.hand_in(write.id, attempt, manifest(context, files[1:]))
    except WriteError as e:
        said("other content", e, [attempt])
    else:
        raise Taken("other content was taken")
    report = write.commit([handle])
    if (report["rows"], report["files"]) != (ROWS.num_rows, len(files)):
        raise Taken(f"{report}")


def committing(driver, table):
    """What only the file tells is found before the commit: the write is refused, and begins anew under its key."""
    key, seen = f"k-{uuid.uuid4()}", set()
    for name, fields, words in (
        ("rows", lambda f: {"rows": f["rows"] + 1, "value_counts": []}, ["rows in its footer instead of"]),
        ("size", lambda f: {"size": f["size"] + 1}, ["bytes instead of"]),
        ("no such file", lambda f: {"path": f["path"].replace(".parquet", ".gone.parquet")}, ["there's no such file"]),
        ("right", lambda _: {}, None),
    ):
        write = driver.begin(table, key)
        worker, context = Firn(driver.location, write.context["worker_token"]), write.context
        attempt = f"task.{uuid.uuid4().hex}"
        files = write_files(context, attempt, ROWS)
        wrong = change(files, **fields(files[0]))
        seen.add(write.id)
        try:
            report = write.commit([worker.hand_in(write.id, attempt, manifest(context, wrong))])
        except NotCommitted as e:
            if not words:
                raise
            said(f"{context['format']}, {name}", e, [*words, wrong[0]["path"]])
            error = e.status["error"]
            if (e.status["state"], error["reason"], error["outcome"], error["code"]) != ("refused", "validation", "refused", "FIRN-2001"):
                raise Taken(f"{name}: {e.status}") from e
            if "again under its key" not in error["hint"]:
                raise Taken(f"{name}: {error}") from e
        else:
            if words:
                raise Taken(f"{context['format']}, {name}: it was committed")
            if report["rows"] != ROWS.num_rows:
                raise Taken(f"{report}")
    if len(seen) != 4:
        raise Taken(f"a refused write was begun again under its id: {seen}")


def main(location, iceberg, delta):
    driver = Firn(location)
    handing_in(driver, iceberg, of_iceberg)
    handing_in(driver, delta, of_delta)
    for table in (iceberg, delta):
        committing(driver, table)


if __name__ == "__main__":
    main(*sys.argv[1:])
