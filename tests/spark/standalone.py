"""A standalone Spark master with two workers, started from pip's PySpark, which brings no scripts for that."""

import os
import subprocess
import sys
from pathlib import Path

from headrace.core.randomness import secret_token
from testkit.waiting import wait_until
from tests.spark.java_options import executor_java_options
from tests.spark.processes import (
    MARK_VARIABLE,
    SPARK_HOME,
    Process,
    children_of,
    listening_ports_of,
)

HOST = "127.0.0.1"


def _task_managers_in(executor: Process) -> list[Process]:
    """Children of an executor's forking daemon that listen."""
    return [
        one
        for daemon in children_of(executor.pid)
        for one in children_of(daemon.pid)
        if listening_ports_of({one.pid})
    ]


class StandaloneCluster:
    """Master and workers as processes of this host, with a secret of their own; `end` kills them all."""

    def __init__(
        self, directory: Path, mark: str, *, cores_per_worker: int = 2, properties: str = ""
    ) -> None:
        """`properties`: lines of Spark's properties file for master and workers."""
        self._directory = directory
        (directory / "local").mkdir(parents=True)
        secret = secret_token().hex()
        self.properties_file = _private_file(
            directory / "spark.properties",
            "spark.authenticate true\nspark.network.crypto.enabled true\n"
            f"spark.authenticate.secret {secret}\n{properties}",
        )
        self.secret_file = _private_file(directory / "secret", secret)
        self._environment = {
            **os.environ,
            MARK_VARIABLE: mark,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            # Executors inherit the workers' directories, not the application's.
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "_JAVA_OPTIONS": f"-Djava.io.tmpdir={directory / 'local'} -XX:-UsePerfData {executor_java_options()}",
        }
        self._log_count = 0
        self._cores_per_worker = cores_per_worker
        self._processes: list[subprocess.Popen[bytes]] = []
        log = self._start("master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
        wait_until(lambda: "Starting Spark master at" in log.read_text(), 60, "the master is up")
        (line,) = [
            text for text in log.read_text().splitlines() if "Starting Spark master at" in text
        ]
        self.url = line.rsplit(" ", 1)[1]
        self.start_workers()

    def start_workers(self) -> None:
        """Start two workers and wait until the master knows them."""
        cores = str(self._cores_per_worker)
        logs = [
            self._start(
                "worker.Worker", "--host", HOST, "--cores", cores, "--memory", "2g",
                "--webui-port", "0", "--work-dir", str(self._directory / f"work-{index}"), self.url,
            )
            for index in range(2)
        ]  # fmt: skip
        wait_until(
            lambda: all("Successfully registered with master" in one.read_text() for one in logs),
            60,
            "both workers are registered",
        )

    @property
    def options(self) -> tuple[str, ...]:
        """What `headrace run` is told to run on it."""
        secret = f"headrace.spark.authenticate-secret-file={self.secret_file}"
        return ("--master", self.url, "-D", secret)

    def executors(self) -> list[Process]:
        """The executors of all applications, which the workers have started."""
        workers = {process.pid for process in self._processes}
        return [
            child
            for pid in workers
            for child in children_of(pid)
            if "CoarseGrainedExecutorBackend" in child.command
        ]

    def executor_of_a_task_manager(self) -> Process:
        """An executor in which a TaskManager is."""
        return next(one for one in self.executors() if _task_managers_in(one))

    def task_managers(self) -> list[Process]:
        """The TaskManagers of all applications."""
        return [one for executor in self.executors() for one in _task_managers_in(executor)]

    def kill_workers(self) -> None:
        """Kill the workers; their executors live on until somebody ends them."""
        master, *workers = self._processes
        for process in workers:
            process.kill()
            process.wait(10)
        self._processes = [master]

    def _start(self, class_name: str, *arguments: str) -> Path:
        path = self._directory / f"log-{self._log_count}"
        self._log_count += 1
        with path.open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [
                        str(SPARK_HOME / "bin" / "spark-class"),
                        f"org.apache.spark.deploy.{class_name}",
                        "--properties-file",
                        str(self.properties_file),
                        *arguments,
                    ],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._directory,
                    start_new_session=True,
                )
            )
        return path

    def end(self) -> None:
        """Stop workers, then the master."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _private_file(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path
