"""Reads a table of Firn's straight from an object store with PyIceberg and with DuckDB and compares their answers with Firn's.

usage: minio_readers.py CATALOG_DB WAREHOUSE ENDPOINT KEY SECRET TABLE ROWS SUM_DISTANCE
"""
import os
import sys

import duckdb
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog


def extension(name):
    """The path of an extension that a PyPI package carries."""
    module = __import__(f"duckdb_extension_{name}")
    for base, _, files in os.walk(os.path.dirname(module.__file__)):
        if f"{name}.duckdb_extension" in files:
            return os.path.join(base, f"{name}.duckdb_extension")
    raise FileNotFoundError(name)


def main():
    db, warehouse, endpoint, key, secret, name, rows, distance = sys.argv[1:]
    want = (int(rows), int(distance))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{db}", warehouse=warehouse, **{
        "s3.endpoint": endpoint, "s3.access-key-id": key, "s3.secret-access-key": secret, "s3.region": "us-east-1"})
    table = catalog.load_table(name)
    read = table.scan(selected_fields=("distance",)).to_arrow()
    got = (read.num_rows, pc.sum(read["distance"]).as_py())
    assert got == want, f"PyIceberg reads {got}, Firn {want}"

    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in ("httpfs", "avro", "iceberg"):
        con.execute(f"LOAD '{extension(package)}'")
    con.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', "
                f"ENDPOINT '{endpoint.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path')")
    got = con.execute(f"SELECT count(*), sum(distance)::BIGINT FROM iceberg_scan('{table.metadata_location}')").fetchone()
    assert got == want, f"DuckDB reads {got}, Firn {want}"
    print(f"{name}: {want[0]} rows, both readers agree")


main()
