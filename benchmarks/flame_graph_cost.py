"""What does a flame graph cost the job that is looked at?

A job of one subtask on a MiniCluster, with a Python function for each record, that has always something to do. In turns
of `--seconds` its stacks are sampled as REST asks for it (every 50 ms, up to 100 frames) and are not. Compared are
records per second of processor time of the whole process, which other programs on the machine change little, and
records per second by the clock. The figures are medians of the turns' ratios, many and short ones, since the speed of a
small virtual machine drifts. While somebody looks, stacks are sampled for five seconds of each minute (100 samples,
`rest.flamegraph.refresh-interval`): the cost of that is a twelfth, and the bound is 3 %.

    python -m benchmarks.flame_graph_cost [--turns 120] [--seconds 1] [--dry]
"""

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.record import record_result
from headrace.common import Types, WatermarkStrategy
from headrace.core.ids import JobId, JobVertexId
from headrace.core.process.stack_sampler import StackSamples
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.rpc.proxies import with_timeout
from headrace.testing.minicluster_executor import MiniClusterExecutor

TAKEN: Final = [0]
"""Records that the function has taken, in this process."""
RECORD_COUNT: Final = 1 << 40
DELAY_MS: Final = 50
DEPTH_MAX: Final = 100
WARM_UP_S: Final = 3


def work(number: int) -> int:
    """Count, and do what a small function of a user does."""
    # This module runs as a program, and the function is shipped: the list to count in is that of the module by name.
    counted = importlib.import_module("benchmarks.flame_graph_cost").TAKEN
    counted[0] += 1
    return sum(int(digit) for digit in str(number))


def start_job() -> tuple[JobId, JobVertexId]:
    """Start the job and return what is to be looked at, once it takes records."""
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_parallelism(1)
    numbers = environment.from_source(
        NumberSequenceSource(0, RECORD_COUNT),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        Types.LONG(),
    )
    sums = numbers.map(work, output_type=Types.LONG())
    sums.filter(lambda _: False).print()
    client = environment.execute_async("flame graph cost")
    counted = importlib.import_module("benchmarks.flame_graph_cost").TAKEN
    while not counted[0]:
        time.sleep(0.05)
    details = client.get_job_details().result()
    return details.job_id, details.vertices[0].vertex_id


def rates(during: Callable[[], object]) -> tuple[float, float]:
    """Return records per second of processor time, and by the clock, while `during` runs."""
    counted = importlib.import_module("benchmarks.flame_graph_cost").TAKEN
    first, used, began = counted[0], time.process_time(), time.monotonic()
    during()
    taken = counted[0] - first
    return taken / (time.process_time() - used), taken / (time.monotonic() - began)


def measure(turns: int, seconds: float) -> dict[str, Any]:
    """Take the turns."""
    sample_count = int(seconds * 1000 / DELAY_MS)
    with MiniClusterExecutor(slot_count=1) as executor:
        job_id, vertex_id = start_job()
        handle = executor.cluster.handle
        manager = with_timeout(handle.resource_manager, 120_000)

        def sample() -> StackSamples:
            question = manager.request_vertex_stack_samples(
                job_id, vertex_id, None, sample_count, DELAY_MS, DEPTH_MAX
            )
            return handle.call(question)

        time.sleep(WARM_UP_S)
        assert sample().sample_count == sample_count
        pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for turn in range(turns):
            if turn % 2:
                sampled, alone = rates(sample), rates(lambda: time.sleep(seconds))
            else:
                alone, sampled = rates(lambda: time.sleep(seconds)), rates(sample)
            pairs.append((sampled, alone))
    by_processor = [sampled[0] / alone[0] for sampled, alone in pairs]
    by_clock = [sampled[1] / alone[1] for sampled, alone in pairs]
    return {
        "turns": turns,
        "seconds": seconds,
        "samples_per_turn": sample_count,
        "records_per_second": statistics.median(alone[1] for _, alone in pairs),
        "cost_by_processor_time_percent": (1 - statistics.median(by_processor)) * 100,
        "cost_by_clock_percent": (1 - statistics.median(by_clock)) * 100,
    }


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--dry", action="store_true", help="keep no result")
    arguments = parser.parse_args()
    figures = measure(arguments.turns, arguments.seconds)
    if arguments.dry:
        print(figures)
    else:
        record_result("flame_graph_cost", figures)


if __name__ == "__main__":
    main()
