"""A driver that has Ray write flights with four workers, of which one is killed, and tasks that fail. See flights.py."""
import glob
import os

import firn_writes
import flights
import pyarrow.parquet as pq


def write_all(run, state, task):
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    for module in (firn_writes, flights):
        ray.cloudpickle.register_pickle_by_value(module)
    # The name of a resource is in the arguments of Ray's daemon, that of a task is its worker's while it runs.
    mark = run["mark_in_arguments"]
    ray.init(address="local", num_cpus=4, resources={mark: 1}, include_dashboard=False, object_store_memory=128 << 20, _node_ip_address="127.0.0.1",
             _temp_dir=run["ray_dir"], logging_level="ERROR", log_to_driver=False)

    @ray.remote(max_retries=3, retry_exceptions=True)
    def write_file(number, path):
        return flights.run_task(state, task, number, pq.ParquetFile(path).iter_batches(10_000))

    paths = sorted(glob.glob(os.path.join(run["input"], "*.parquet")))
    return ray.get([write_file.options(name=mark).remote(n, path) for n, path in enumerate(paths)])


flights.drive(write_all)
