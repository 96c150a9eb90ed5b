"""Reads lake.air.t of a SQLite catalog with PyIceberg and prints what it finds, as JSON. Its column n should have 0, 1, 2 and so on.

usage: expiring_read.py CATALOG_DB PROPERTIES
"""
import json
import sys

import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

table = SqlCatalog("lake", uri="sqlite:///" + sys.argv[1], **json.loads(sys.argv[2])).load_table("air.t")
n = table.scan().to_arrow()["n"]
print(json.dumps({
    "rows": len(n), "distinct": pc.count_distinct(n).as_py(), "least": pc.min(n).as_py(), "greatest": pc.max(n).as_py(),
    "files": sorted(task.file.file_path for task in table.scan().plan_files()), "snapshots": len(table.snapshots()),
}))
