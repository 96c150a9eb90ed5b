"""Goes through what can come of a write, with examples/python/firn_writes.py: what it raises, what it says, and what the table has then.

usage: outcomes.py LOCATION CATALOG_DB WAREHOUSE; asks whoever started it for "stop" and "start" of the scheduler, by a line each, and waits for one.
"""
import json
import os
import sys
import time
import types

import firn_writes
import pyarrow as pa
import pyarrow.flight as flight
from firn_writes import Firn, NotCommitted, SealedWithOthers, Unanswered, Unknown, Write, WriteError, write_batches
from pyiceberg.catalog.sql import SqlCatalog

TABLE = "lake.air.t"
firn = Firn(sys.argv[1])
catalog = SqlCatalog("lake", uri="sqlite:///" + sys.argv[2], warehouse=sys.argv[3])


def rows(*ids):
    return [pa.table({"id": pa.array(ids, pa.int64())})]


def there():
    return sorted(catalog.load_table("air.t").scan().to_arrow()["id"].to_pylist())


def raises(kind, call, *args, **named):
    try:
        got = call(*args, **named)
    except WriteError as e:
        assert type(e) is kind, f"{type(e).__name__}: {e}, want {kind.__name__}"
        return e
    raise AssertionError(f"{got!r}, want {kind.__name__}")


def ask(what):
    print(what, flush=True)
    sys.stdin.readline()


def committed_once():
    write = firn.begin(TABLE, "once")
    a, b = write_batches(write.task, rows(1, 2)), write_batches(write.task, rows(3))
    write_batches(write.task, rows(99))  # lost
    report = write.commit([b, a, a])
    assert (report["commit"], report["rows"], report["files"]) == ("committed", 3, 2), report
    assert write.status["sealed_handles"] == sorted([a, b])
    assert write.commit([a, b]) == report, "the same handles join"
    assert firn.resume("once").outcome() == report
    again = firn.begin(TABLE, "once")
    assert not again.open and again.id == write.id
    assert {**again.outcome(), "deduplicated": False} == {**report, "deduplicated": False}, again.status
    assert there() == [1, 2, 3]
    e = raises(SealedWithOthers, write.commit, [a])
    assert e.status["state"] == "committed" and e.status["sealed_handles"] == sorted([a, b]), e.status
    e = raises(WriteError, again.__class__.task.fget, again)
    assert there() == [1, 2, 3]


def aborted():
    write = firn.begin(TABLE, "given-up")
    handle, task = write_batches(write.task, rows(50)), write.task
    assert write.abort()["state"] == "aborted"
    assert raises(WriteError, write_batches, task, rows(51)).fault["code"] == "FIRN-6041"
    assert raises(NotCommitted, write.commit, [handle]).status["state"] == "aborted"
    assert raises(NotCommitted, firn.resume("given-up").outcome).status["state"] == "aborted"
    second = firn.begin(TABLE, "given-up")
    assert second.open and second.id != write.id and second.task.context["prefix"] != task.context["prefix"]
    assert raises(WriteError, second.commit, [handle]).fault["code"] == "FIRN-6044", "another write's"
    second.commit([write_batches(second.task, rows(4))])
    assert there() == [1, 2, 3, 4]


def a_block_that_fails_aborts():
    try:
        with firn.begin(TABLE, "fails") as write:
            write_batches(write.task, rows(60))
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert firn.resume("fails").status["state"] == "aborted"


def nothing_written():
    write = firn.begin(TABLE)
    report = write.commit([write_batches(write.task, [])])
    assert (report["commit"], report["rows"]) == ("committed", 0), report
    report = firn.begin(TABLE).commit([])
    assert report["rows"] == 0, report


def dry_run():
    write = firn.begin(TABLE, dry_run=True)
    report = write.commit([write_batches(write.task, rows(70, 71))])
    assert write.status["state"] == "verified" and report["rows"] == 2, write.status
    assert there() == [1, 2, 3, 4]


def what_is_wrong_is_told():
    assert raises(WriteError, firn.begin, "lake.air.missing", "m").fault["outcome"] == "none"
    assert raises(WriteError, firn.resume, "never-begun").fault["code"] == "FIRN-6040"
    assert raises(WriteError, firn.begin, "lake.air.u", "once").fault["code"] == "FIRN-6001"
    write = firn.begin(TABLE, "wrong")
    for batches in ([pa.table({"other": [1]})], [pa.table({"id": ["x"]})]):
        try:
            write_batches(write.task, batches)
        except (ValueError, pa.ArrowException):
            continue
        raise AssertionError(f"{batches} was written")
    # A file that isn't Parquet, and one that the manifest lies about.
    attempt, prefix = "liar", write.task.context["prefix"]
    path = f"{prefix}{attempt}-0.parquet"
    os.makedirs(prefix[len("file://"):], exist_ok=True)
    with open(path[len("file://"):], "w") as f:
        f.write("nonsense")
    e = raises(WriteError, firn.hand_in, write.id, attempt, pa.table({"path": [path]}))
    assert path in str(e) and e.fault["outcome"] == "none", e
    assert raises(WriteError, firn.hand_in, write.id, "else", pa.table({"path": [path]})).fault["code"].startswith("FIRN-")
    # A worker may hand in for its own write, and may not commit it.
    worker = Firn(firn.location, write.task.context["worker_token"])
    raises(Unknown, Write(worker, {"status": write.status}).commit, [])
    write.abort()


def a_worker_starts_after_the_first_ttl():
    with firn.begin(TABLE, "long", ttl_seconds=2) as write:
        task = write.task  # as an engine sends it to its workers, once
        while firn_writes._left(task.context["expires_at"]) > -1:
            time.sleep(0.1)
        write.commit([write_batches(task, rows(7))])
    assert there() == [1, 2, 3, 4, 7]
    write = firn.begin(TABLE, "left", ttl_seconds=1)
    while firn.resume("left").open:
        time.sleep(0.1)
    assert raises(NotCommitted, firn.resume("left").outcome).status["state"] == "expired"
    assert raises(WriteError, write_batches, write.task, rows(8)).fault["code"] == "FIRN-6041"


class Lossy:
    """A client whose first calls get through, and whose answers are lost."""

    def __init__(self, client, times):
        self.client, self.times, self.then = client, times, None

    def do_action(self, *args):
        if self.then and self.times == 0:
            raise self.then
        answer = self.client.do_action(*args)
        if self.times > 0:
            self.times -= 1
            next(answer)
            raise flight.FlightUnavailableError("the answer is lost")
        return answer


def answers_are_lost():
    lossy = Firn(firn.location)
    lossy.client = Lossy(lossy.client, 1)
    write = lossy.begin(TABLE, "lossy")
    handle = write_batches(write.task, rows(8))
    lossy.client.times = 2
    assert write.commit([handle])["rows"] == 1, "it was asked a third time"
    assert there() == [1, 2, 3, 4, 7, 8]
    # A call that had no answer may have sealed the write: that nobody is let in afterwards is no refusal.
    write = lossy.begin(TABLE, "lossy-2")
    lossy.client.times, lossy.client.then = 1, flight.FlightUnauthenticatedError("the token was revoked")
    raises(Unknown, write.commit, [])
    assert firn.resume("lossy-2").outcome()["rows"] == 0
    # Neither is it one by itself: an earlier commit may have sealed the write. What this driver knew before it committed isn't, either.
    lossy.client.times = 0
    raises(Unknown, write.commit, [])
    raises(Unknown, write.outcome)
    raises(Unknown, write.outcome, deadline=0)
    lossy.client.then = None
    assert write.outcome()["rows"] == 0
    # An abort that isn't let in gives nothing up, and one that comes too late says so.
    lossy.client.then = flight.FlightUnauthenticatedError("the token was revoked")
    raises(WriteError, write.abort)
    lossy.client.then = None
    assert write.abort()["state"] == "committed"
    # A commit that was never sent seals nothing: the scheduler says so, and then it is known.
    write = lossy.begin(TABLE, "never-sent")
    lossy.client.then = flight.FlightUnauthenticatedError("the token was revoked")
    raises(Unknown, write.commit, [])
    lossy.client.then = None
    # Until then a void handle says nothing of it: it may still be on its way.
    raises(Unknown, write.commit, ["no handle"])
    assert raises(WriteError, write.outcome).status["state"] == "open"
    assert write.abort()["state"] == "aborted"
    raises(NotCommitted, write.outcome)


class Told:
    """Stands for a scheduler that says this, one after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def act(self, action, patience=60, **fields):
        return self.answers.pop(0)

    def do_action(self, *args):
        return iter([types.SimpleNamespace(body=pa.py_buffer(json.dumps(self.answers.pop(0)).encode()))])


def another_submission():
    report = {"rows": 33, "other_submission": True, "deduplicated": True}
    status = {"write_id": "w", "idempotency_key": "k", "report": report}
    begun, lost, before = ({**status, "state": state} for state in ("open", "committed_by_other", "committed"))
    sealed = {"result": "sealed", "status": {**status, "state": "committing", "sealed_handles": ["h"], "seal_digest": "d", "report": None}}
    others = {"result": "sealed_with_other_handles", "status": lost}
    for answers in ([others], [sealed, {"result": "status", "status": lost}]):
        e = raises(SealedWithOthers, Write(Told(*answers), {"status": begun}).commit, ["h"])
        assert e.status["report"]["rows"] == 33 and "sealed_handles" not in e.status, e.status
    raises(SealedWithOthers, Write(Told(), {"status": lost}).outcome)
    # A key that was committed before the write could open: it's the key's report, and no outcome of handles.
    assert Write(Told(), {"status": before}).outcome() == report
    raises(SealedWithOthers, Write(Told({"result": "sealed_with_other_handles", "status": before}), {"status": before}).commit, ["h"])
    # What an answer of another version means isn't known.
    later = Firn(firn.location)
    later.client = Told({"version": 2, "result": "sealed", "status": {**status, "state": "committed"}}, {"version": 2})
    raises(Unknown, Write(later, {"status": begun}).commit, ["h"])
    raises(Unanswered, later.act, "WriteStatus", write_id="w")


def the_scheduler_is_away():
    write = firn.begin(TABLE, "away")
    handle = write_batches(write.task, rows(5))
    ask("stop")
    raises(Unknown, write.commit, [handle], deadline=2)
    raises(Unanswered, firn.act, "WriteStatus", patience=1, write_id=write.id)
    ask("start")
    again = firn.begin(TABLE, "away")
    assert again.open and again.id == write.id
    late = write_batches(again.task, rows(6))
    assert again.commit([handle, late])["rows"] == 2
    assert there() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(catalog.load_table("air.t").snapshots()) == 5, "one for each write with rows"


for step in (committed_once, aborted, a_block_that_fails_aborts, nothing_written, dry_run, what_is_wrong_is_told, a_worker_starts_after_the_first_ttl, answers_are_lost, another_submission, the_scheduler_is_away):
    step()
    print("ok", step.__name__, flush=True)
