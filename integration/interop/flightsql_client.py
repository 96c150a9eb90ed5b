"""Does over ADBC's Flight SQL driver what tools do with a scheduler.

usage: flightsql_client.py URI TOKEN
"""

import datetime
import decimal
import sys
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow
from adbc_driver_flightsql import DatabaseOptions, StatementOptions

KEY = StatementOptions.RPC_CALL_HEADER_PREFIX.value + "firn-idempotency-key"


def connect(uri, **more):
    return flightsql.connect(uri, db_kwargs=more, autocommit=True)


def refused(call, *words):
    """Says with what text a call was refused, which must have the words."""
    try:
        call()
    except Exception as e:  # whichever class the driver makes of it
        text = str(e)
        assert all(w in text for w in words), text
        return text
    raise AssertionError(f"nothing refused what should say {words}")


def rows(connection, query):
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def statements(c):
    for ddl in ["CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.t (n BIGINT, s VARCHAR, d DECIMAL(10,2), at TIMESTAMP, day DATE)"]:
        rows(c, ddl)
    with c.cursor() as cursor:
        cursor.execute(
            "INSERT INTO lake.air.t SELECT i, 'row ' || i, CAST(i / 4 AS DECIMAL(10,2)), TIMESTAMP '2026-01-31 01:02:03', DATE '2026-01-31' FROM range(20000) r(i)"
        )
        assert cursor.rowcount == 20000, cursor.rowcount
    got = rows(c, "SELECT * FROM lake.air.t ORDER BY n")
    assert len(got) == 20000 and [r[0] for r in got] == list(range(20000))
    assert got[3] == (3, "row 3", decimal.Decimal("0.75"), datetime.datetime(2026, 1, 31, 1, 2, 3), datetime.date(2026, 1, 31)), got[3]
    assert rows(c, "SHOW TABLES IN lake.air") == [("lake", "air", "t")]
    assert "scheduler root: commit append to lake.air.t" in "\n".join(r[0] for r in rows(c, "EXPLAIN INSERT INTO lake.air.t (n) VALUES (1)"))


def keys(c):
    for i in range(2):
        with c.cursor() as cursor:
            cursor.adbc_statement.set_options(**{KEY: "load-1"})
            cursor.execute("INSERT INTO lake.air.t (n) VALUES (-1)")
            assert cursor.rowcount == 1, cursor.rowcount
    assert rows(c, "SELECT count(*) FROM lake.air.t WHERE n = -1") == [(1,)]
    with c.cursor() as cursor:
        cursor.adbc_statement.set_options(**{KEY: "load-1"})
        refused(lambda: cursor.execute("INSERT INTO lake.air.t (n) VALUES (-2)"), "FIRN-6001", "Use a fresh key")


def errors(c):
    refused(lambda: rows(c, "SELECT * FROM lake.air.none"), "lake.air.none", "FIRN-5003", "SHOW TABLES lists them")
    refused(lambda: rows(c, "SELEC 1"), "FIRN-1001", "Did you mean SELECT?")
    refused(lambda: rows(c, "USE lake.air"), "FIRN-6081", "firn-catalog")
    with c.cursor() as cursor:
        refused(lambda: cursor.execute("SELECT ?", parameters=(1,)), "parameters")


def ingest(c):
    table = pyarrow.table({"s": ["a", None], "n": pyarrow.array([-10, -11], pyarrow.int64())})
    with c.cursor() as cursor:
        n = cursor.adbc_ingest("t", table, mode="append", catalog_name="lake", db_schema_name="air")
        assert n == 2, n
        refused(lambda: cursor.adbc_ingest("u", table, mode="create", catalog_name="lake", db_schema_name="air"), "CREATE TABLE")
    assert rows(c, "SELECT s FROM lake.air.t WHERE n IN (-10, -11) ORDER BY n") == [(None,), ("a",)]


def metadata(c):
    info = c.adbc_get_info()
    assert info["vendor_name"] == "Firn", info
    assert c.adbc_get_table_types() == ["TABLE"]
    (catalog,) = c.adbc_get_objects(depth="all", catalog_filter="lake", table_name_filter="t%").read_all().to_pylist()
    (schema,) = catalog["catalog_db_schemas"]
    (table,) = schema["db_schema_tables"]
    columns = [column["column_name"] for column in table["table_columns"]]
    assert (schema["db_schema_name"], table["table_name"], columns) == ("air", "t", ["n", "s", "d", "at", "day"]), schema
    want = pyarrow.schema(
        {"n": pyarrow.int64(), "s": pyarrow.string(), "d": pyarrow.decimal128(10, 2), "at": pyarrow.timestamp("us"), "day": pyarrow.date32()}
    )
    assert c.adbc_get_table_schema("t", catalog_filter="lake", db_schema_filter="air") == want


def cancel(c):
    with c.cursor() as cursor:
        def stop():
            time.sleep(1)
            cursor.adbc_cancel()

        threading.Thread(target=stop).start()
        began = time.monotonic()
        refused(lambda: cursor.execute("SELECT count(*) FROM range(1000000000) a(x), range(1000000000) b(y) WHERE x + y = 7"), "ancel")
        assert time.monotonic() - began < 30


def sessions(uri, token):
    with connect(
        uri,
        **{
            DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}",
            DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "firn-catalog": "lake",
            DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "firn-namespace": "air",
        },
    ) as c:
        assert rows(c, "SELECT n FROM t WHERE n = 7") == [(7,)]
    # A token may come as a password, too.
    with connect(uri, username="anybody", password=token) as c:
        assert rows(c, "SELECT 1") == [(1,)]
    refused(lambda: connect(uri, username="anybody", password="firn_wrong"), "let in")
    with connect(uri) as c:
        refused(lambda: rows(c, "SELECT 1"), "neither a token nor a certificate")


def main(uri, token):
    with connect(uri, **{DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}) as c:
        for check in [statements, keys, errors, ingest, metadata, cancel]:
            check(c)
            print(check.__name__, "passed")
    sessions(uri, token)
    print("sessions passed")


main(*sys.argv[1:])
