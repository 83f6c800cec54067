"""Headrace as it is measured beside other engines: the job of `program.py` on two TaskManagers that Spark hosts."""

import tempfile
from collections.abc import Iterable

import numpy as np

from benchmarks.keyed_latency.peers.serving import Asked, serve
from benchmarks.keyed_latency.program import Load, run_job, warm_laps


def run(asked: Asked) -> Iterable[int]:
    """Run the job; its TaskManagers outlive it."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {
            "execution.checkpointing.dir": directory,
            "execution.checkpointing.interval": f"{asked.checkpoint_interval_ms} ms",
        }
        if asked.target_ms is not None:
            settings["headrace.latency.target"] = f"{asked.target_ms} ms"
        load = Load(asked.rate, asked.seconds, asked.parallelism, asked.keys)
        laps = warm_laps(
            run_job("keyed latency", load, settings, asked.buffer_timeout_ms), asked.warm_up_seconds
        )
    return np.concatenate([lap.latencies_us for lap in laps]).tolist() if laps else []


if __name__ == "__main__":
    serve(run)
