"""What the drivers for Spark and for Ray have in common: which faults their tasks have, and how a driver goes on from the tasks' handles.

A run is given as JSON: location (of the scheduler), token_file, table, key, input (a directory of Parquet files), state (a directory, by which
tasks, drivers and the test tell each other what has happened), mode (see drive).
"""
import json
import os
import signal
import sys
import threading
import time

import firn_writes
import pyarrow as pa
import pyarrow.compute as pc

TASKS = 12
FAIL, KILL_EXECUTOR, KILL_WORKER, STRAGGLE = 0, 1, 3, TASKS - 1
MARK_IN_MEMORY = "kNr7Marker.of.a.task"
PATIENCE = 600


class State:
    """A directory by which processes tell each other what has happened."""

    def __init__(self, directory):
        self.directory = directory

    def once(self, name):
        """Whether nobody has asked for the name before."""
        try:
            os.close(os.open(os.path.join(self.directory, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def tell(self, name, text=""):
        path = os.path.join(self.directory, name)
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)

    def told(self, name):
        return os.path.exists(os.path.join(self.directory, name))

    def wait(self, name):
        end = time.monotonic() + PATIENCE
        while not self.told(name):
            if time.monotonic() > end:
                raise TimeoutError(f"nobody told {name}")
            time.sleep(0.02)


def parent_called(name):
    """The nearest parent of this process that runs a program of that name."""
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as f:
            command, _, rest = f.read().partition("(")[2].rpartition(")")
        if command == name:
            return pid
        pid = int(rest.split()[1])
    raise ProcessLookupError(f"no parent is called {name}")


def run_task(state, task, number, batches, attempt=None, executor=None):
    """Writes the rows of one input file, with the file's faults at the first attempt. attempt is its number, from an engine that runs a straggler
    a second time; executor is the program that stands over the worker."""
    # Small row groups and files, so that there are files already when a worker is killed.
    firn_writes._Writer.at_once = firn_writes._Writer.memory = 1 << 20
    if number % 2:  # these write with keys that they have asked for themselves
        firn_writes._Store.margin = 1 << 20
    straggles = False

    def kill(name, pid):
        state.tell("doomed-" + name, str(pid))
        state.wait("searched-" + name)  # by the test, for secrets
        state.tell(name, str(pid))
        os.kill(pid, signal.SIGKILL)
        state.wait("never")  # a moment passes until it's gone

    def rows():
        nonlocal straggles
        if executor and number > KILL_WORKER:
            state.wait("executor-killed")  # or Spark would run what waits to be killed a second time, and kill it itself
        for n, batch in enumerate(batches):
            table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
            if "month" in task.context["file_columns"] or any(f["source"] == "month" for f in task.context["partition"]):
                table = table.append_column("month", pc.month(table["date"]).cast(pa.int32()))
            yield table
            if n < 12:  # some files are there from then on
                continue
            if number == KILL_WORKER and state.once("worker-first"):
                kill("worker-killed", os.getpid())
            if executor and number == KILL_EXECUTOR and state.once("executor-first"):
                state.wait("worker-killed")  # which may be one of this executor's
                kill("executor-killed", parent_called(executor))
        if number == STRAGGLE and attempt is not None and state.once("straggler-first"):
            straggles = True
            state.wait("overtook")  # a second attempt has handed its files in

    handle = firn_writes.write_batches(task, rows(), f"{MARK_IN_MEMORY}.{number}")
    told = json.dumps({"number": attempt, "handle": handle})
    if number == FAIL and state.once("fail-first"):
        state.tell("failed", told)
        raise RuntimeError("this task fails after it has handed its files in")
    if number == STRAGGLE and attempt is not None:
        state.tell("straggled" if straggles else "overtook", told)
        state.wait("straggled")  # an engine that had one attempt's answer would kill the other
    return handle


def stays_below_its_prefix(task):
    """The keys of a write don't write beside its prefix."""
    files, prefix = firn_writes._Store(None, task.context).files, task.context["prefix"].removeprefix("s3://").rstrip("/")
    for beside in (prefix + "x/a.parquet", os.path.dirname(prefix) + "/a.parquet"):
        try:
            files.open_output_stream(beside).close()
        except OSError as e:
            assert "ACCESS_DENIED" in str(e), e
        else:
            raise AssertionError(f"the keys of a write write {beside}")


def drive(write_all):
    """Runs a driver. write_all has the engine write, and gives the handles. Modes:

    die     begins, writes, and is killed while it commits, once the commit has arrived
    again   begins under the same key: the whole program a second time
    resume  asks by the key alone
    """
    run = json.loads(sys.argv[1])
    state = State(run["state"])
    with open(run["token_file"]) as f:
        firn = firn_writes.Firn(run["location"], f.read().strip())
    if run["mode"] == "resume":
        write = firn.resume(run["key"])
        report = write.outcome()
    else:
        with firn.begin(run["table"], run["key"], engine=run["engine"]) as write:
            if write.open:
                stays_below_its_prefix(write.task)
                handles = write_all(run, state, write.task)
                state.tell("written", json.dumps({"prefix": write.task.context["prefix"], "handles": handles, "driver": os.getpid()}))
                state.wait("go")
                if run["mode"] == "die":
                    die(firn, write, handles)
                report = write.commit(handles)
            else:
                report = write.outcome()
    print(json.dumps({"write_id": write.id, "state": write.status["state"], "sealed_handles": write.status["sealed_handles"], "report": report}))


def die(firn, write, handles):
    threading.Thread(target=write.commit, args=(handles,), daemon=True).start()
    while firn.act("WriteStatus", write_id=write.id)["status"]["state"] == "open":
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGKILL)
