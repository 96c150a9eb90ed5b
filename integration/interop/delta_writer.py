"""Writes Delta tables with delta-rs, as it is told line by line: "create PATH", "append PATH ID" for a row of that id, "read PATH" for the
ids that are there. Answers each line with one of JSON: {"version": n}, {"ids": [...]} or {"error": text}."""
import json
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.string()), pa.field("w", pa.string())])


def rows(*ids):
    return pa.table({"id": ids, "p": [f"p/{i % 3}" for i in ids], "w": ["delta-rs"] * len(ids)}, SCHEMA)


def answer(line):
    what, path, *rest = line.split(" ")
    if what == "create":
        write_deltalake(path, rows(), partition_by=["p"], configuration={"delta.checkpointInterval": "7"})
    elif what == "append":
        # Against a faster writer its own 15 tries may not be enough.
        write_deltalake(path, rows(int(rest[0])), mode="append", partition_by=["p"], commit_properties=CommitProperties(max_commit_retries=200))
    elif what == "read":
        return {"ids": sorted(DeltaTable(path).to_pyarrow_table(columns=["id"]).column(0).to_pylist())}
    return {"version": DeltaTable(path).version()}


for line in sys.stdin:
    try:
        out = answer(line.rstrip("\n"))
    except Exception as e:  # told to whoever asked
        out = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(out), flush=True)
