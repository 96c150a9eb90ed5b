"""Reads a table of a local SQLite catalog with PyIceberg and prints what it finds, as JSON.

usage: table_files.py CATALOG_DB NAMESPACE TABLE COLUMN
"""
import json
import sqlite3
import sys

import pyarrow.compute as pc
from pyiceberg.table import StaticTable


def main():
    db, namespace, name, column = sys.argv[1:]
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as con:
        (location,) = con.execute("SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?", (namespace, name)).fetchone()
    table = StaticTable.from_metadata(location)
    values = table.scan(selected_fields=(column,)).to_arrow()[column]
    files = [task.file.record_count for task in table.scan().plan_files()]
    print(json.dumps({
        "rows": len(values), "distinct": pc.count_distinct(values).as_py(), "sum": pc.sum(values).as_py(),
        "files": len(files), "recorded": sum(files), "snapshots": len(table.snapshots()),
    }))


main()
