"""Reads what the engines wrote with PyIceberg or delta-rs, straight from the store, and prints it as JSON: how many rows there are, how many of
them the input doesn't have as often, or has more often, with one of these, the versions of the table that added rows, and the paths of its files.

usage: check.py iceberg PROPERTIES TABLE INPUT | check.py delta OPTIONS URI INPUT
"""
import json
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def summary(rows, versions, files):
    want = pq.read_table(sys.argv[4])
    if "month" in rows.column_names:
        want = want.append_column("month", pc.month(want["date"]).cast(pa.int32()))
    both = [t.append_column("times", pa.repeat(sign, t.num_rows)) for t, sign in ((rows.select(want.column_names).cast(want.schema), 1), (want, -1))]
    times = pa.concat_tables(both).group_by(want.column_names).aggregate([("times", "sum")])
    other = times.filter(pc.not_equal(times["times_sum"], 0))
    return {
        "rows": rows.num_rows, "other": pc.sum(pc.abs(other["times_sum"])).as_py() or 0, "example": str(other.slice(0, 1).to_pylist()),
        "versions": versions, "files": sorted(files),
    }


def iceberg(properties, name):
    from pyiceberg.catalog import load_catalog

    table = load_catalog("lake", **json.loads(properties)).load_table(name)
    adding = [s.snapshot_id for s in table.snapshots() if int(s.summary.additional_properties.get("added-records", "0")) > 0]
    return summary(table.scan().to_arrow(), [str(s) for s in adding], table.inspect.files()["file_path"].to_pylist())


def delta(options, uri):
    from deltalake import DeltaTable

    table = DeltaTable(uri, storage_options=json.loads(options))
    adding = [str(h["version"]) for h in table.history() if h["operation"] != "CREATE TABLE"]
    return summary(table.to_pyarrow_table(), adding, table.file_uris())


print(json.dumps({"iceberg": iceberg, "delta": delta}[sys.argv[1]](*sys.argv[2:4])))
