"""A driver that has Spark write flights: two executors with two Python workers each, speculation on, and tasks that fail. See flights.py. The run
also has spark, the URL of a master."""
import os
import sys

import flights
import pyarrow as pa


def write_all(run, state, task):
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    events = os.path.join(run["state"], "events")
    os.mkdir(events)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.task.maxFailures": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.2",
        "spark.eventLog.enabled": "true",  # the test reads which attempts Spark ran
        "spark.eventLog.dir": "file://" + events,
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.files.maxPartitionBytes": "4194304",  # with openCostInBytes: each file is a partition
        # Java starts in a third of the time without its optimising compiler.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dfirn.test=" + run["mark_in_arguments"],
    }
    builder = SparkSession.builder.master(run["spark"]).appName("firn")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for module in ("firn_writes", "flights"):
        spark.sparkContext.addPyFile(sys.modules[module].__file__)

    def write_partition(batches):
        from pyspark import TaskContext

        this = TaskContext.get()
        handle = flights.run_task(state, task, this.partitionId(), batches, attempt=this.attemptNumber(), executor="java")
        yield pa.RecordBatch.from_pydict({"handle": [handle]})

    rows = spark.read.parquet(run["input"]).mapInArrow(write_partition, "handle string").collect()
    return [row.handle for row in rows]


flights.drive(write_all)
