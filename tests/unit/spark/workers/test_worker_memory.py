"""A TaskManager's share of an executor's memory, from Spark's configuration alone."""

import pytest

from headrace.spark.workers.worker_process import worker_memory_bytes

MB, GB = 1 << 20, 1 << 30


@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,1,1024]", "spark://host:7077"])
def test_where_spark_enforces_nothing_the_worker_looks_for_itself(master: str) -> None:
    assert (
        worker_memory_bytes({"spark.master": master, "spark.executor.memoryOverhead": "2g"}) is None
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spark.executor.memoryOverhead": "2g"}, 2 * GB),
        ({"spark.executor.memoryOverhead": "512"}, 512 * MB),
        ({"spark.executor.memoryOverhead": "2g", "spark.executor.cores": "4"}, GB // 2),
        (
            {
                "spark.executor.memoryOverhead": "2g",
                "spark.executor.cores": "4",
                "spark.task.cpus": "2",
            },
            GB,
        ),
        ({"spark.executor.memory": "8g", "spark.executor.memoryOverheadFactor": "0.25"}, 2 * GB),
        ({}, 384 * MB),
    ],
)
def test_the_overhead_is_shared_by_the_workers_of_an_executor(
    settings: dict[str, str], expected: int
) -> None:
    assert worker_memory_bytes({"spark.master": "yarn", **settings}) == expected


def test_kubernetes_gives_python_more_by_default() -> None:
    conf = {"spark.master": "k8s://https://host:6443", "spark.executor.memory": "10g"}
    assert worker_memory_bytes(conf) == 4 * GB
