"""The process of a TaskManager in its job's Python environment; a Spark worker started it and waits for its end.

python -m headrace.spark.workers.environment_process <process id of the worker> <descriptor for the answer>
"""

import logging
import os
import sys

import msgspec

from headrace.spark.workers.job_environment import READY
from headrace.spark.workers.worker import WorkerSpec, host_task_manager
from headrace.spark.workers.worker_process import die_with_parent, end_process


def main(worker_pid: int, descriptor: int) -> None:
    """Read the worker's description from standard input, run the TaskManager, and answer with the reason of its end."""
    # Processes that functions start must not inherit the descriptor.
    os.set_inheritable(descriptor, False)
    spec = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=WorkerSpec)
    if not die_with_parent(worker_pid):
        end_process("the worker that started this process is gone")
    os.write(descriptor, READY.encode())
    os.write(descriptor, host_task_manager(spec, spec.configuration, worker_pid).encode())
    logging.shutdown()
    # End as Spark's daemon ends its workers, so that no thread of a function delays it.
    os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
