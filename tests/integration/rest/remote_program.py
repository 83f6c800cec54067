"""A program in a process of its own, whose jobs run on a cluster in another: `python remote_program.py WHAT ADDRESS …`.

It prints one line of JSON for whoever started it, with the libraries that it should not have loaded.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from headrace import RestClusterClient, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.core.errors import HeadraceError
from headrace.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from headrace.datastream.state import ValueStateDescriptor
from tests.integration.programs.gated import GatedSource
from tests.integration.programs.job_details import await_begun

TOO_HEAVY = {
    "pyspark",
    "py4j",
    "fastapi",
    "uvicorn",
    "pydantic",
    "headrace.cluster",
    "headrace.spark",
}


class CountPerKey(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._multiples = runtime_context.get_metrics_group().counter("multiples")

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        self._multiples.inc(value % 3 == 0)
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield count


class CountMultiples(MapFunction):
    """Counts multiples of three in a metric of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._multiples = runtime_context.get_metrics_group().counter("multiples")

    def map(self, value: int) -> int:
        if value % 3 == 0:
            self._multiples.inc()
        return value


def environment(address: str) -> StreamExecutionEnvironment:
    """Return an environment whose jobs go to the cluster at `address`."""
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = {"execution.target": "remote", "rest.address": address}
    env.configure(Configuration.from_dict(settings))
    return env


def collect(address: str) -> Any:
    """Return the records of a bounded job."""
    numbers = environment(address).from_collection(list(range(100)), type_info=Types.LONG())
    with numbers.map(lambda n: n * n, output_type=Types.LONG()).execute_and_collect() as records:
        return sorted(records)


def run_big(address: str) -> Any:
    """Return the number of records of a job whose collection is brought as a blob of several chunks."""
    env = environment(address)
    texts = env.from_collection(["x" * 1_000] * 3_000, type_info=Types.STRING())
    with texts.execute_and_collect() as records:
        return sum(1 for _ in records)


def execute(address: str) -> Any:
    """Return the parallelism that a program has by default, and the status of its job at its end."""
    env = environment(address)
    env.from_collection([1, 2, 3], type_info=Types.LONG()).print()
    result = env.execute("squares")
    with RestClusterClient(address) as cluster:
        return {
            "job": str(result.get_job_id()),
            "status": cluster.get_job_status(result.get_job_id()).name,
        }


def accumulate(address: str) -> Any:
    """Return the accumulators of a job, from its result and for a client that attaches to it."""
    env = environment(address)
    numbers = env.from_collection(list(range(100)), type_info=Types.LONG()).rebalance()
    numbers.map(CountMultiples(), output_type=Types.LONG()).name("count").print()
    result = env.execute("counted")
    with RestClusterClient(address) as cluster:
        attached = cluster.get_job_client(result.get_job_id()).get_accumulators().result()
    return [result.get_all_accumulator_results(), attached]


def fail(address: str) -> Any:
    """Return class and text of the error with which a failing job ends."""

    def broken(number: int) -> int:
        raise ValueError(f"{number} is not wanted")

    env = environment(address)
    env.configure(Configuration.from_dict({"restart-strategy.type": "none"}))
    env.from_collection([7], type_info=Types.LONG()).map(broken, output_type=Types.LONG()).print()
    return said(env.execute)


def wait_with_a_job(address: str, gate: str) -> Any:
    """Say the id of a job that is to end with this process, and wait for it."""
    env = environment(address)
    settings = {
        "execution.shutdown-on-attached-exit": "true",
        "client.heartbeat.interval": "200 ms",
        "client.heartbeat.timeout": "2 s",
    }
    env.configure(Configuration.from_dict(settings))
    source = GatedSource(gate, None)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).print()
    client = env.execute_async("tied")
    print(client.get_job_id(), flush=True)
    client.get_job_execution_result().result()


def leave_a_job(address: str, gate: str) -> Any:
    """Return the id of a job that is to end with this process, which does not wait for it."""
    env = environment(address)
    env.configure(Configuration.from_dict({"execution.shutdown-on-attached-exit": "true"}))
    source = GatedSource(gate, None)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).print()
    return str(env.execute_async("tied").get_job_id())


def submit_endless(address: str, gate: str, folder: str) -> Any:
    """Return the id of a job that waits for a gate in the cluster's process, and leave it there."""
    env = environment(address)
    env.configure(
        Configuration.from_dict(
            {
                "execution.attached": "false",
                "execution.checkpointing.interval": "1 h",
                "execution.checkpointing.dir": f"{folder}/checkpoints",
            }
        )
    )
    source = GatedSource(gate, None)
    numbers = env.from_source(
        source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    ).uid("numbers")
    keyed = numbers.key_by(lambda n: n % 4, key_type=Types.LONG())
    keyed.process(CountPerKey(), output_type=Types.LONG()).uid("count").print().uid("print")
    return str(env.execute("endless").get_job_id())


def steer(address: str, job: str, folder: str) -> Any:
    """Return what a process learns that attaches to a job by its id."""
    with RestClusterClient(address) as cluster:
        client = cluster.get_job_client(job)
        state = client.state()
        await_begun(
            client, lambda details: details.vertices[-1].metrics.get("numRecordsIn", 0) == 100
        )
        rows = state.live("count").rows.to_pylist()
        found = {
            "status": client.get_job_status().result().name,
            "jobs": [str(each.job_id) for each in cluster.list_jobs()],
            "vertices": len(client.get_job_details().result().vertices),
            "operators": sorted(each.uid or "" for each in state.operators()),
            "accumulators": client.get_accumulators().result(),
            "counts": sorted((row["key"], row["value"]) for row in rows),
            "checkpoint": client.trigger_checkpoint().result(),
            "savepoint": client.trigger_savepoint(f"{folder}/savepoints").result(),
            "unknown operator": said(lambda: state.live("nobody")),
        }
        with state.committed() as committed:
            found["committed"] = committed.is_own
        found["stopped"] = client.stop_with_savepoint(False, f"{folder}/savepoints").result()
        found["result"] = client.get_job_execution_result().result().get_net_runtime() >= 0
        found["over"] = said(lambda: client.cancel().result())
        return found


def cancel(address: str, job: str) -> Any:
    """Return the error of a job that this process has cancelled."""
    with RestClusterClient(address) as cluster:
        client = cluster.get_job_client(job)
        client.cancel().result()
        return said(lambda: client.get_job_execution_result().result())


def ask_for_nobody(address: str) -> Any:
    """Return the error of a job that was never there."""
    with RestClusterClient(address) as cluster:
        return said(lambda: cluster.get_job_client("0f" * 16))


def said(call: Callable[[], Any]) -> list[str]:
    """Return class and text of the error that a call raises."""
    try:
        call()
    except HeadraceError as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("it raised nothing")


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    answer = globals()[what](*arguments)
    print(json.dumps({"answer": answer, "loaded": sorted(TOO_HEAVY & set(sys.modules))}))
