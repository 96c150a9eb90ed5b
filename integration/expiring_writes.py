"""A driver and its workers, with examples/python/firn_writes.py, whose keys to the store end while they write. Prints what came of it, as a line of JSON.

usage: expiring_writes.py RUN, which is JSON: location (of the scheduler), key, workers, batches (of each), expire_after (so many batches, each worker
having got there), meanwhile (what happens to the write just before: "", "abort" or "commit", of another worker's files). It prints "expire", and goes on
when it's given a line.
"""
import json
import sys
import threading

import firn_writes
import pyarrow as pa

EACH = 150_000  # rows of a batch, which are more than one row group
TRIES = 3  # of a task, as of an engine's

run = json.loads(sys.argv[1])
firn_writes._Writer.at_once = firn_writes._Writer.memory = 1 << 20
renewals, failures, lock = [], [], threading.Lock()


class Counting(firn_writes.Firn):
    """Notes which keys were named when new ones were asked for."""

    def act(self, action, *args, **fields):
        if action == "RenewWrite":
            with lock:
                renewals.append(fields.get("expired_access_key_id"))
        return super().act(action, *args, **fields)


firn_writes.Firn = Counting
write = Counting(run["location"]).begin("lake.air.t", run["key"])
task = write.task  # as an engine sends it to its workers, once


def expire():
    if run["meanwhile"] == "abort":
        write.abort()
    elif run["meanwhile"] == "commit":
        write.commit([firn_writes.write_batches(task, [pa.table({"n": pa.array([-1], pa.int64())})], "other")])
    print("expire", flush=True)
    sys.stdin.readline()


together = threading.Barrier(run["workers"], action=expire)
waited = set()


def rows(number):
    for b in range(run["batches"]):
        if b == run["expire_after"] and number not in waited:
            waited.add(number)
            together.wait()
        first = (number * run["batches"] + b) * EACH
        yield pa.table({"n": pa.array(range(first, first + EACH), pa.int64())})


def work(number):
    for _ in range(TRIES):
        try:
            handles[number] = firn_writes.write_batches(task, rows(number), f"w{number}")
            return
        except Exception as e:
            with lock:
                failures.append({"kind": type(e).__name__, "text": str(e)})


handles = {}
threads = [threading.Thread(target=work, args=(n,)) for n in range(run["workers"])]
for t in threads:
    t.start()
for t in threads:
    t.join()
report = write.commit(handles.values()) if len(handles) == run["workers"] else None
print(json.dumps({
    "prefix": task.context["prefix"], "first_key": task.context["storage"]["credentials"]["access_key_id"], "rows": run["workers"] * run["batches"] * EACH,
    "renewals": renewals, "failures": failures, "report": report,
}))
