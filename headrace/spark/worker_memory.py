"""How much memory a TaskManager on a Spark cluster may count on: its share of what the executor has beside its heap.

A Python worker lives outside the executor's JVM. YARN and Kubernetes end a container that takes more than heap and
overhead together, so the overhead, shared by the workers of the executor, is all that they may take. A standalone
master enforces nothing: there the worker looks at its container or machine itself.
Source: Spark's documentation of spark.executor.memoryOverhead.
"""

import re
from collections.abc import Mapping
from typing import Final

_OVERHEAD_MIN_BYTES: Final = 384 << 20
_OVERHEAD_FACTOR: Final = {"yarn": 0.1, "k8s": 0.4}
"""What Spark takes where nothing is set; on Kubernetes for applications that are not the JVM's alone."""
_UNITS: Final = {
    "": 20,
    "b": 0,
    "k": 10,
    "kb": 10,
    "m": 20,
    "mb": 20,
    "g": 30,
    "gb": 30,
    "t": 40,
    "tb": 40,
}


def worker_memory_bytes(conf: Mapping[str, str]) -> int | None:
    """Return the share of one TaskManager by Spark's configuration, or None where Spark bounds nothing."""
    manager = conf.get("spark.master", "").partition("://")[0]
    factor = _OVERHEAD_FACTOR.get(manager)
    if factor is None:
        return None
    explicit = conf.get("spark.executor.memoryOverhead")
    if explicit is not None:
        overhead_bytes = _size_bytes(explicit)
    else:
        factor = float(conf.get("spark.executor.memoryOverheadFactor", factor))
        heap_bytes = _size_bytes(conf.get("spark.executor.memory", "1g"))
        overhead_bytes = max(_OVERHEAD_MIN_BYTES, int(heap_bytes * factor))
    cores = int(conf.get("spark.executor.cores", "1"))
    worker_count = max(1, cores // int(conf.get("spark.task.cpus", "1")))
    return overhead_bytes // worker_count


def _size_bytes(text: str) -> int:
    """Spark's sizes: a number with a unit; mebibytes without."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    assert match is not None and match[2] in _UNITS, f"Spark took '{text}' for a size"
    return int(match[1]) << _UNITS[match[2]]
