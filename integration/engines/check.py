"""Reads what the engines wrote with PyIceberg or delta-rs, straight from the store, and prints it as JSON: rows, the sums of distance and delay,
rows by month, the versions of the table that added rows, the paths of its files, and one of the rows' texts.

usage: check.py iceberg PROPERTIES TABLE | check.py delta OPTIONS URI
"""
import json
import sys

import pyarrow.compute as pc


def summary(rows, versions, files):
    months = pc.value_counts(pc.strftime(rows["date"], format="%Y-%m"))
    return {
        "rows": rows.num_rows, "distance": pc.sum(rows["distance"]).as_py(), "delay": pc.sum(rows["delay"]).as_py(),
        "months": {m["values"]: m["counts"] for m in months.to_pylist()}, "versions": versions, "files": sorted(files),
        "origins": pc.count_distinct(rows["origin"]).as_py(),
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


print(json.dumps({"iceberg": iceberg, "delta": delta}[sys.argv[1]](*sys.argv[2:])))
