"""Reads a table of Firn's straight from an object store with PyIceberg and with DuckDB and compares their answers with Firn's.

usage: store_readers.py PROPERTIES TABLE ROWS SUM_DISTANCE
PROPERTIES are PyIceberg's of the catalog and its store, as JSON.
"""
import json
import os
import sys

import duckdb
import pyarrow.compute as pc
from pyiceberg.catalog import load_catalog


def extension(name):
    """The path of an extension that a PyPI package carries."""
    module = __import__(f"duckdb_extension_{name}")
    for base, _, files in os.walk(os.path.dirname(module.__file__)):
        if f"{name}.duckdb_extension" in files:
            return os.path.join(base, f"{name}.duckdb_extension")
    raise FileNotFoundError(name)


def main():
    properties, name, rows, distance = sys.argv[1:]
    properties = json.loads(properties)
    want = (int(rows), int(distance))
    table = load_catalog("lake", **properties).load_table(name)
    read = table.scan(selected_fields=("distance",)).to_arrow()
    got = (read.num_rows, pc.sum(read["distance"]).as_py())
    assert got == want, f"PyIceberg reads {got}, Firn {want}"

    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in ("httpfs", "avro", "iceberg"):
        con.execute(f"LOAD '{extension(package)}'")
    con.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{properties['s3.access-key-id']}', SECRET '{properties['s3.secret-access-key']}', "
                f"REGION 'us-east-1', ENDPOINT '{properties['s3.endpoint'].removeprefix('http://')}', USE_SSL false, URL_STYLE 'path')")
    got = con.execute(f"SELECT count(*), sum(distance)::BIGINT FROM iceberg_scan('{table.metadata_location}')").fetchone()
    assert got == want, f"DuckDB reads {got}, Firn {want}"
    print(f"{name}: {want[0]} rows, both readers agree")


main()
