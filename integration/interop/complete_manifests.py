"""Writes tables by the open write protocol with complete manifests: they say of each file what Firn would otherwise read from its footer.

usage: complete_manifests.py LOCATION TABLE…

It was written from docs/reference/write-protocol.md and the specifications of Iceberg and Delta alone, and needs pyarrow. From the client in
examples/python it has the calls, and the bytes that `bucket` hashes; the Arrow tables of manifests, and all that stands in them, are made here.
Each table gets its rows in two attempts, and a third attempt, a copy of the second, is handed in and not committed.
Prints the report of each write.
"""
import base64
import datetime
import decimal
import json
import math
import os
import struct
import sys
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from firn_writes import Firn, _hashed, _murmur3

EPOCH = datetime.datetime(1970, 1, 1)
CUT = 16  # characters, or bytes, that bounds of texts and binaries keep
ROW_GROUP = 9

COLUMNS = {
    "id": pa.int64(),
    "n": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "d": pa.date32(),
    "ts": pa.timestamp("us"),
    "amount": pa.decimal128(18, 2),
    "raw": pa.binary(),
    "kind": pa.string(),
    "place": pa.struct([("zip", pa.int32()), ("city", pa.string())]),
    "tags": pa.list_(pa.string()),
    "nothing": pa.int64(),
}


def a_row(i):
    """Row i of every table. Nothing in it is random, so that readers know what they must find."""
    return {
        "id": (i - 60) * 10**14,
        "n": None if i % 11 == 3 else i - 60,
        "x": None if i % 13 == 5 else math.nan if i % 7 == 2 else math.inf if i == 31 else (i - 50) / 8 if i % 8 else -0.0,
        "s": None if i % 17 == 4 else f"a text that is longer than sixteen characters {i:03}" if i % 3 else "äöü\U0010ffff∂" * 5,
        "b": None if i % 19 == 6 else i % 2 == 0,
        "d": EPOCH.date() + datetime.timedelta(days=20 * (i % 6) - 45),
        "ts": None if i % 23 == 7 else EPOCH + datetime.timedelta(days=i % 4 - 2, microseconds=1 + 999_999 * i),
        "amount": decimal.Decimal((i % 5 - 2) * 10**15 + 1).scaleb(-2),
        "raw": None if i % 29 == 8 else b"\xff" * 20 if i % 30 == 0 else bytes([i, 255]) * 12,
        "kind": None if i % 31 == 9 else ("red", "ge=lb/ü", "blue and more than sixteen")[i % 3],
        "place": None if i % 5 == 4 else {"zip": None if i % 6 == 2 else 10_000 + i, "city": f"city {i}"},
        "tags": None if i % 8 == 1 else ["tag"] * (i % 3),
        "nothing": None,
    }


ROWS = pa.Table.from_pylist([a_row(i) for i in range(120)], pa.schema(list(COLUMNS.items())))


def schema_of(encoded):
    return pa.ipc.open_stream(base64.b64decode(encoded)).schema


def field_id(field):
    return int(field.metadata[b"PARQUET:field_id"])


def nan_count(values):
    return pc.sum(pc.is_nan(values)).as_py() or 0 if pa.types.is_floating(values.type) else 0


def least_and_greatest(values):
    """Bounds of the values that are neither null nor NaN."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    low, high = (pc.min_max(values)[m].as_py() for m in ("min", "max"))
    if isinstance(low, float):  # a bound of zero has the sign that keeps both zeros inside
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return low, high


# Iceberg


def single_value(value, typ):
    """Appendix D of Iceberg's specification."""
    if pa.types.is_boolean(typ):
        return b"\x01" if value else b"\x00"
    if pa.types.is_date(typ):
        return struct.pack("<i", value if isinstance(value, int) else (value - EPOCH.date()).days)
    if pa.types.is_timestamp(typ):
        return struct.pack("<q", (value - EPOCH) // datetime.timedelta(microseconds=1))
    if pa.types.is_decimal(typ):
        unscaled = int(value.scaleb(typ.scale))
        return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)
    if pa.types.is_string(typ):
        return value.encode()
    if pa.types.is_binary(typ):
        return value
    return struct.pack({pa.int32(): "<i", pa.int64(): "<q", pa.float32(): "<f", pa.float64(): "<d"}[typ], value)


def cut_up(value):
    """The least short text, or binary, that isn't below the value; None if there is none."""
    if len(value) <= CUT:
        return value
    text = isinstance(value, str)
    points = [ord(c) for c in value[:CUT]] if text else list(value[:CUT])
    while points:
        last = points.pop()
        if last < (0x10FFFF if text else 0xFF):
            points.append(0xE000 if text and last == 0xD7FF else last + 1)
            return "".join(map(chr, points)) if text else bytes(points)
    return None


def iceberg_leaves(fields, rows):
    """Each leaf with its id, its path in Parquet, and its values; None for those in lists, whose statistics may be left out."""
    for field in fields:
        yield from _iceberg_leaf(field, field.name, rows[field.name].combine_chunks())


def _iceberg_leaf(field, path, values):
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from _iceberg_leaf(child, f"{path}.{child.name}", values and pc.struct_field(values, child.name))
    elif pa.types.is_list(field.type):
        yield from _iceberg_leaf(field.type.value_field, f"{path}.list.element", None)
    else:
        yield field_id(field), path, values


def iceberg_statistics(context, rows, sizes):
    out = {name: [] for name in ("column_sizes", "value_counts", "null_counts", "nan_counts", "lower", "upper")}
    for number, path, values in iceberg_leaves(schema_of(context["arrow_schema"]), rows):
        out["column_sizes"].append((number, sizes[path]))
        if values is None:
            continue
        out["value_counts"].append((number, len(values)))
        out["null_counts"].append((number, values.null_count))
        if pa.types.is_floating(values.type):
            out["nan_counts"].append((number, nan_count(values)))
        low, high = least_and_greatest(values)
        if isinstance(low, (str, bytes)):
            low, high = low[:CUT], cut_up(high)
        for name, value in (("lower", low), ("upper", high)):
            if value is not None:
                out[name].append((number, single_value(value, values.type)))
    return out


RESULT = {"int": pa.int32(), "date": pa.date32()}


def transformed(value, transform):
    name, _, number = transform.rstrip("]").partition("[")
    if value is None or name == "void":
        return None
    if name == "identity":
        return value
    if name == "bucket":
        return (_murmur3(_hashed(value)) & 0x7FFFFFFF) % int(number)
    if name == "truncate":
        return value[: int(number)] if isinstance(value, (str, bytes)) else value - value % int(number)
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
    if name in ("day", "hour"):
        return (moment - EPOCH) // datetime.timedelta(**{name + "s": 1})
    return moment.year - 1970 if name == "year" else 12 * (moment.year - 1970) + moment.month - 1


def iceberg_partition(context, rows):
    """The partition of each row, as a manifest has it."""
    columns = [(f, rows[f["source"]].to_pylist(), RESULT.get(f["type"], rows.schema.field(f["source"]).type)) for f in context["partition"]]
    for i in range(rows.num_rows):
        values = [(f["field_id"], transformed(source[i], f["transform"]), typ) for f, source, typ in columns]
        yield tuple((number, v is None, b"" if v is None else single_value(v, typ)) for number, v, typ in values)


# Delta


def delta_json(value, typ):
    """A bound as Delta's statistics have it; None where they have none."""
    if pa.types.is_boolean(typ) or pa.types.is_binary(typ) or (isinstance(value, float) and math.isinf(value)):
        return None
    if pa.types.is_timestamp(typ):
        return json.dumps(value.isoformat(timespec="microseconds") + ("Z" if typ.tz else ""))  # Firn rounds it to milliseconds
    if pa.types.is_decimal(typ):
        return f"{value:f}"
    return json.dumps(str(value) if pa.types.is_date(typ) else value, ensure_ascii=False)


def delta_leaves(context, rows):
    number = 0
    waiting = [rows[name].combine_chunks() for name in context["file_columns"]]
    while waiting:
        values = waiting.pop(0)
        if pa.types.is_struct(values.type):
            waiting[:0] = [pc.struct_field(values, f.name) for f in values.type]
            continue
        number += 1
        yield number, values


def delta_statistics(context, rows, _):
    out = {name: [] for name in ("column_sizes", "value_counts", "null_counts", "nan_counts", "lower", "upper")}
    for number, values in delta_leaves(context, rows):
        out["null_counts"].append((number, values.null_count))
        if pa.types.is_nested(values.type):
            continue
        low, high = least_and_greatest(values)
        if nan_count(values):
            high = None  # NaN is the greatest of all, and JSON hasn't got it
        for name, value in (("lower", low), ("upper", high)):
            if value is not None and (text := delta_json(value, values.type)):
                out[name].append((number, text.encode()))
    return out


def delta_partition(context, rows):
    columns = [(f["field_id"], rows[f["source"]].to_pylist()) for f in context["partition"]]
    for i in range(rows.num_rows):
        texts = [(number, delta_text(source[i])) for number, source in columns]
        yield tuple((number, not text, text.encode()) for number, text in texts)


def delta_text(value):
    """Partition Value Serialization of Delta's protocol."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "microseconds")
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


# Both


def fitted(context, rows):
    """The rows with the columns, types and field ids of the table."""
    schema = schema_of(context["arrow_schema"])
    return rows.select(schema.names).cast(schema)


def write_file(context, attempt, rows, partition):
    """Writes a file and gives the row of it in a complete manifest."""
    uri = f"{context['prefix']}{attempt}-{uuid.uuid4().hex}.parquet"
    path = uri.removeprefix("file://")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as f:
        # Without statistics in its footer, so that what a table knows of the file is what its manifest says.
        pq.write_table(rows.select(context["file_columns"]), f, row_group_size=ROW_GROUP, write_statistics=False)
        f.flush()
        os.fsync(f.fileno())
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    footer = pq.read_metadata(path)
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    sizes, offsets = {}, []
    for group in groups:
        for column in (group.column(i) for i in range(group.num_columns)):
            sizes[column.path_in_schema] = sizes.get(column.path_in_schema, 0) + column.total_compressed_size
        first = group.column(0)
        offsets.append(first.dictionary_page_offset or first.data_page_offset)
    statistics = iceberg_statistics if context["format"] == "iceberg" else delta_statistics
    return {
        "path": uri,
        "format": "PARQUET",
        "attempt": attempt,
        "schema_id": context["schema_id"],
        "spec_id": context["spec_id"],
        "sort_order_id": 0,
        "partition": [{"field_id": number, "null": null, "value": value} for number, null, value in partition],
        "rows": rows.num_rows,
        "size": os.path.getsize(path),
        "split_offsets": offsets,
        **statistics(context, rows, sizes),
    }


def write_files(context, attempt, rows):
    """One file for each partition of the rows, and the rows of the manifest."""
    rows = fitted(context, rows)
    by = {}
    for i, partition in enumerate((iceberg_partition if context["format"] == "iceberg" else delta_partition)(context, rows)):
        by.setdefault(partition, []).append(i)
    return [write_file(context, attempt, rows.take(which), partition) for partition, which in by.items()]


def manifest(context, files):
    return pa.Table.from_pylist(files, schema_of(context["manifest_schemas"]["complete"]))


def write_attempt(firn, context, rows):
    """What a worker task does: an attempt of its own, and its handle."""
    attempt = f"task.{uuid.uuid4().hex}"
    return firn.hand_in(context["write_id"], attempt, manifest(context, write_files(context, attempt, rows)))


def main(location, tables):
    driver = Firn(location)
    for table in tables:
        with driver.begin(table) as write:
            worker = Firn(location, write.context["worker_token"])
            handles = [write_attempt(worker, write.context, part) for part in (ROWS.slice(0, 50), ROWS.slice(50), ROWS.slice(50))]
            print(json.dumps({**write.commit(handles[:2]), "prefix": write.context["prefix"]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
