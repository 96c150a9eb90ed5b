"""Writes over TLS with a token, and is turned away without them.

usage: over_tls.py LOCATION CATALOG_DB WAREHOUSE; the directory of the catalog has ca.crt and client.token.
"""
import os
import sys

import pyarrow as pa
from firn_writes import Firn, Unanswered, WriteError, write_batches

home = os.path.dirname(sys.argv[2])
location = sys.argv[1].replace("grpc://", "grpc+tls://")
with open(os.path.join(home, "ca.crt"), "rb") as f:
    ca = f.read()
with open(os.path.join(home, "client.token")) as f:
    token = f.read().strip()


def turned_away(kind, where, shown, certs):
    try:
        Firn(where, shown, certs).act("BeginWrite", patience=1, table="lake.air.t", idempotency_key="k")
    except WriteError as e:
        assert type(e) is kind, repr(e)
        return str(e)
    raise AssertionError("let in")


firn = Firn(location, token, ca)
write = firn.begin("lake.air.t", "k")
handle = write_batches(write.task, [pa.table({"id": [1, 2]})])
print(turned_away(WriteError, location, None, ca))
print(turned_away(WriteError, location, token + "x", ca))
print(turned_away(WriteError, location, write.task.context["worker_token"], ca))
print(turned_away(Unanswered, location, token, None))
print(turned_away(Unanswered, sys.argv[1], token, ca))
assert write.commit([handle])["rows"] == 2
print("committed")
