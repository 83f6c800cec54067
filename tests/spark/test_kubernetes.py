"""Spark's Kubernetes backend hosts jobs: executors are pods, which a stand-in for the cluster runs on this host."""

import os
import shutil
import signal
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
import yaml

from testkit.exactly_once import lines_of_files
from testkit.waiting import wait_until
from tests.spark.commands import NO_UI, Commands, check_counts, counts_program
from tests.spark.kubernetes_pods import kubernetes_cluster
from tests.spark.processes import marked_processes
from tests.spark.programs import ROOT, Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

PATIENT = ("-D", "headrace.spark.executor-timeout=3 min")
"""A machine that does much else starts three JVMs slowly."""
SETTINGS = (
    *PATIENT,
    "-D", "execution.checkpointing.interval=500 ms",
    "-D", f"spark.pyspark.python={sys.executable}",
    "-D", f"spark.executorEnv.PYTHONPATH={ROOT}",
)  # fmt: skip
PLACES = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

def place(n):
    import headrace, os
    return headrace.__file__ + " " + os.environ["SPARK_EXECUTOR_POD_IP"]

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_collection(list(range(40)), type_info=Types.LONG()).rebalance()
with numbers.map(place, output_type=Types.STRING()).execute_and_collect() as rows:
    for row in sorted(set(rows)):
        print("PLACE", row)
"""


def packed_environment(folder: Path) -> Path:
    """Return an archive of a virtual environment with Headrace in it, which finds all other packages where they are."""
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    [packages] = environment.glob("lib/python*/site-packages")
    shutil.copytree(
        ROOT / "headrace", packages / "headrace", ignore=shutil.ignore_patterns("__pycache__")
    )
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(environment, ".")
    return archive


def test_a_job_on_executor_pods_writes_every_row_once_though_a_pod_is_killed(
    tmp_path: Path, started: list[Program]
) -> None:
    count = 4_500
    pods = tmp_path / "pods"
    pods.mkdir()
    with kubernetes_cluster(pods) as cluster:
        program = headrace_run(
            tmp_path, counts_program(count, 300), *cluster.options, *SETTINGS, *NO_UI
        )
        started.append(program)
        wait_until(
            lambda: (
                len(lines_of_files(tmp_path / "lines")) > 2 or program.process.poll() is not None
            ),
            120,
            f"committed lines\n{program.report()}",
        )
        first = cluster.kubelet.running()
        assert len(first) == 2, program.report()
        os.kill(first[0].process.pid, signal.SIGKILL)
        assert program.wait(200) == 0, program.report()
        check_counts(tmp_path, count)
        assert len(cluster.kubelet.pods) == 3, "the one that was killed has a successor"
        wait_until(lambda: not marked_processes(cluster.kubelet.mark), 30, "the end of all pods")
        program.assert_nothing_is_left()


def permitted() -> set[tuple[str, str]]:
    """Verbs and collections that the Role of the example permits."""
    text = (ROOT / "examples" / "deploy" / "headrace-orders.yaml").read_text()
    [role] = [one for one in yaml.safe_load_all(text) if one["kind"] == "Role"]
    return {
        (verb, plural)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for plural in rule["resources"]
    }


def test_a_session_ships_its_python_environment_to_executor_pods(
    tmp_path: Path, started: list[Program]
) -> None:
    pods = tmp_path / "pods"
    pods.mkdir()
    archive = packed_environment(tmp_path)
    (tmp_path / "places.py").write_text(PLACES)
    commands = Commands(tmp_path, started)
    with kubernetes_cluster(pods) as cluster:
        shipped = (
            "-D", f"spark.archives={archive}#environment",
            "-D", "spark.pyspark.python=environment/bin/python",
        )  # fmt: skip
        session = commands.daemon(
            "cluster", "start", "--name", "nightly", *cluster.options, *PATIENT, *shipped, *NO_UI
        )
        told = commands("run", "--cluster", "nightly", "places.py")
        places = [line.split()[1:] for line in told.splitlines() if line.startswith("PLACE")]
        executors = {pod.address: pod.folder for pod in cluster.kubelet.running()}
        # One executor may have come first, and host all TaskManagers.
        assert places and {address for _, address in places} <= executors.keys()
        for module, address in places:
            assert Path(module).is_relative_to(executors[address] / "environment")
        commands("cluster", "stop", "nightly")
        wait_until(lambda: not marked_processes(cluster.kubelet.mark), 30, "the end of all pods")
        assert not [path for path in cluster.api.objects if "/configmaps/" in path]
        assert cluster.api.requests <= permitted(), "the example's Role is enough"
        assert ("create", "pods") in cluster.api.requests
        session.assert_nothing_is_left()
