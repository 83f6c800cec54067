"""A TaskManager in a process of its own that says, when it is asked, what its data plane still holds of jobs.

Standard input is its pickled configuration, and then a line for each question; standard output is a line of JSON for
each answer. It ends when its input does, whoever closed that. It writes a log where the configuration has a folder.
"""

import gc
import json
import logging
import pickle
import signal
import sys
from typing import Any

from headrace.cluster.task_executor import task_manager_runner
from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.cluster.task_executor.shuffle_service_loader import create_credit_based_environment
from headrace.core.config import Settings
from headrace.core.process.log_files import task_manager_file_name
from headrace.core.process.process_log import ProcessLog
from headrace.core.threads import share_interpreter, start_thread
from headrace.network.shuffle_environment import ShuffleEnvironmentContext
from testkit.simulation.exchange_scan import ExchangeScan, ScannedExchange


class ScannedShuffleService:
    """The half of the built-in service that a TaskManager has, over an environment that can be scanned."""

    def __init__(self) -> None:
        # Only whoever sees all processes could say that a result goes too early.
        self._scan = ExchangeScan(lambda job_id, place: False)
        self.exchange: ScannedExchange | None = None

    def create_shuffle_environment(self, context: ShuffleEnvironmentContext) -> ScannedExchange:
        create: Any = self._scan.create_exchange
        made: Any = create_credit_based_environment(context, create)
        self.exchange = made
        return made


def main() -> None:
    configuration: TaskManagerConfiguration = pickle.load(sys.stdin.buffer)
    lock_watcher = task_manager_runner.fork_lock_watcher(Settings(configuration.settings))
    service = ScannedShuffleService()
    load: Any = lambda settings: service  # noqa: E731
    task_manager_runner.load_shuffle_service_factory = load
    should_stop = task_manager_runner.EndRequest()

    def answer() -> None:
        try:
            for _ in sys.stdin.buffer:
                assert service.exchange is not None
                # A task that was stopped amid a batch refers to it, and belongs to a circle of such references.
                gc.collect()
                print(json.dumps(service.exchange.leaks()), flush=True)
        finally:
            should_stop.set()

    if configuration.log_folder is not None:
        name = task_manager_file_name(configuration.resource_id)
        log = ProcessLog(configuration.log_folder, name, Settings(configuration.settings))
        logging.getLogger().addHandler(log.handler)
        logging.getLogger().setLevel(logging.INFO)
    share_interpreter()
    # As in a worker of Spark's.
    signal.signal(signal.SIGTERM, lambda *_: should_stop.decommission())
    start_thread("answers", answer)
    task_manager_runner.run_task_manager(
        configuration, should_stop=should_stop, lock_watcher=lock_watcher
    )


if __name__ == "__main__":
    main()
