"""Spark's Kubernetes backend hosts jobs: executors are pods, which a stand-in for the cluster runs on this host."""

import json
import os
import re
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from headrace.rest.home.home_folder import write_private_file
from testkit.exactly_once import lines_of_files
from testkit.waiting import wait_until
from tests.spark.commands import NO_UI, Commands, check_counts, counts_program
from tests.spark.kubernetes_pods import KubernetesCluster, Pod, kubernetes_cluster
from tests.spark.pod_image import python_environment
from tests.spark.pod_names import HOSTS_VARIABLE
from tests.spark.pod_network import pod_network
from tests.spark.processes import marked_processes
from tests.spark.programs import ROOT, Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

PATIENT = ("-D", "headrace.spark.executor-timeout=3 min")
"""A machine that does much else starts three JVMs slowly."""
CHECKPOINTS = ("-D", "execution.checkpointing.interval=500 ms")
SETTINGS = (
    *PATIENT,
    *CHECKPOINTS,
    "-D", f"spark.pyspark.python={sys.executable}",
    "-D", f"spark.executorEnv.PYTHONPATH={ROOT}",
)  # fmt: skip
TLS_HANDSHAKE = b"\x16\x03"
"""First bytes of what both sides of a connection with TLS send."""
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
    """Return an archive of a virtual environment with Headrace in it."""
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(python_environment(folder), ".")
    return archive


@pytest.mark.long
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


ROW_TEXT = "a row that nobody else reads"
EXCHANGE = f"""
from collections import Counter
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(3)
numbers = env.from_collection(list(range(3_000)), type_info=Types.LONG()).rebalance()
texts = numbers.map(lambda n: f"{{n % 30}} {ROW_TEXT} {{n}}", output_type=Types.STRING())
keyed = texts.key_by(lambda text: text.split()[0], key_type=Types.STRING())
counted = keyed.map(lambda text: text.split()[0], output_type=Types.STRING())
with counted.execute_and_collect() as rows:
    print("COUNTED", Counter(rows) == Counter({{str(n): 100 for n in range(30)}}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces of pods need root")
@pytest.mark.parametrize(
    "is_plain",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.repetition("the control: unencrypted rows are seen on the way")
        ),
    ],
)
def test_rows_between_pods_of_two_hosts_are_encrypted(
    tmp_path: Path, started: list[Program], is_plain: bool
) -> None:
    pods = tmp_path / "pods"
    pods.mkdir()
    settings = {
        "security.ssl.internal.enabled": "false",
        "headrace.security.allow-plaintext": "true",
    }
    words = [word for pair in settings.items() for word in ("-D", "=".join(pair))]
    with pod_network() as network, kubernetes_cluster(pods, network) as cluster:
        program = headrace_run(
            tmp_path, EXCHANGE, *cluster.options, *SETTINGS, *NO_UI, *(words if is_plain else ())
        )
        started.append(program)
        assert program.wait(200) == 0, program.report()
        assert "COUNTED True\n" in program.out, program.report()
        wait_until(lambda: not marked_processes(cluster.kubelet.mark), 30, "the end of all pods")
        flows = network.flows()
        program.assert_nothing_is_left()
    # Three TaskManagers have not all found room on one host, so some rows went to the other one.
    carried = sum(map(len, flows.values()))
    assert carried > 20_000, {flow: len(sent) for flow, sent in flows.items()}
    is_seen = any(ROW_TEXT.encode() in sent for sent in flows.values())
    are_tls = [sent[:2] == TLS_HANDSHAKE for sent in flows.values()]
    if is_plain:
        assert is_seen and not any(are_tls), "who listens reads rows that nobody encrypts"
    else:
        assert not is_seen and are_tls and all(are_tls), flows.keys()


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


@pytest.mark.long
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubernetesCluster]:
    folder = tmp_path / "pods"
    folder.mkdir()
    with kubernetes_cluster(folder) as found:
        yield found


def main_of(cluster: KubernetesCluster) -> str:
    """Return the program of the command line, as a path in the image."""
    return f"local://{cluster.image.packages}/headrace/__main__.py"


def submit_session(commands: Commands, cluster: KubernetesCluster, *more: str) -> Pod:
    """Submit the session of the page on deployment, and return the pod of its driver once it serves.

    Its executors find the driver by the name of its Service, so that it is on another host for them: a pod's address
    is one of this host here.
    """
    submitted = commands.begin(
        *cluster.submission, "--conf", "spark.kubernetes.submission.waitAppCompletion=false",
        "--conf", "spark.kubernetes.executor.useDriverPodIP=false",
        main_of(cluster), "cluster", "start", "--foreground", "--name", "nightly",
        "-D", "rest.bind-address=0.0.0.0", *PATIENT, *NO_UI, *more,
    )  # fmt: skip
    assert submitted.wait(120) == 0, submitted.report()
    driver = cluster.pod("-driver")
    await_in(driver, lambda: "session 'nightly' runs at" in driver.log, "the session")
    return driver


def client_of(driver: Pod, cluster: KubernetesCluster, commands: Commands) -> Callable[..., str]:
    """Return the command line of another host, to which the files of a session have been copied."""
    shutil.copytree(
        driver.folder / "home" / ".headrace" / "clusters", commands.folder / "home" / "clusters"
    )

    def run(*arguments: str) -> str:
        names = {HOSTS_VARIABLE: str(cluster.image.hosts)}
        program = commands.begin(str(cluster.image.python), "-m", "headrace", *arguments, **names)
        assert program.wait() == 0, program.report() + driver.log
        return "".join(program.out)

    return run


def await_in(driver: Pod, condition: Callable[[], bool], what: str) -> None:
    """Wait for something that a driver does; its log says why it does not come."""
    try:
        wait_until(lambda: condition() or driver.process.poll() is not None, 180, what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{driver.log}") from error
    assert condition(), driver.log


def assert_nothing_is_left_of(cluster: KubernetesCluster, driver: Pod) -> None:
    """The driver's pod has been deleted, and all that it owned goes with it."""
    wait_until(lambda: not cluster.api.objects, 60, "the end of all objects")
    wait_until(lambda: not marked_processes(cluster.kubelet.mark), 30, "the end of all processes")
    assert driver.process.poll() is not None


@pytest.mark.long
def test_a_session_in_a_driver_pod_takes_jobs_of_other_hosts_until_it_is_stopped(
    cluster: KubernetesCluster, tmp_path: Path, started: list[Program]
) -> None:
    commands = Commands(tmp_path, started)
    (tmp_path / "job.py").write_text(counts_program(2_000, 2_000))
    driver = submit_session(commands, cluster)
    on_another_host = client_of(driver, cluster, commands)
    shown = on_another_host("cluster", "info", "nightly")
    assert re.search(r"address: +https://.*-driver-svc\.default\.svc:\d+\n", shown), shown
    # A host that does not know the Service's name, but reaches the pod.
    [file] = (tmp_path / "home" / "clusters").glob("*.json")
    connection = json.loads(file.read_text())
    del connection["pid"], connection["start_ticks"]
    connection |= {"name": "by-address", "address": f"https://{driver.address}:{file.stem}"}
    write_private_file(file.with_name("by-address.json"), json.dumps(connection).encode())
    assert commands.answer("cluster", "info", "by-address")["jobs-running"] == 0
    on_another_host("run", "--target", "session", "--cluster", "nightly", *CHECKPOINTS, "job.py")
    check_counts(tmp_path, 2_000)
    assert "Cluster nightly has ended." in on_another_host("cluster", "stop", "nightly")
    wait_until(lambda: cluster.phase(driver) == "Succeeded", 60, "the end of the driver")
    assert len(cluster.api.collection("pods")) == 1, "executors are gone, and its log is there"
    cluster.delete(driver)
    assert_nothing_is_left_of(cluster, driver)
    # Who submits also makes the policy that shields executors.
    assert cluster.api.requests - {("patch", "networkpolicies")} <= permitted()


@pytest.mark.parametrize(
    "is_plain",
    [
        True,
        pytest.param(
            False, marks=pytest.mark.repetition("the plain program loses its executor too")
        ),
    ],
)
@pytest.mark.long
def test_a_program_in_a_driver_pod_writes_every_row_once_though_an_executor_is_killed(
    cluster: KubernetesCluster, tmp_path: Path, started: list[Program], is_plain: bool
) -> None:
    count = 4_500
    program = tmp_path / "program.py"
    if is_plain:
        settings = '{"execution.checkpointing.interval": "500 ms"}'
        words = [f"local://{program}"]
    else:
        settings, words = "", [main_of(cluster), "run", *CHECKPOINTS, str(program)]
    program.write_text(
        counts_program(count, 300).replace("_environment()", f"_environment({settings})")
    )
    submitted = Commands(tmp_path, started).begin(*cluster.submission, *words)
    driver = cluster.pod("-driver")
    await_in(driver, lambda: len(lines_of_files(driver.folder / "lines")) > 2, "committed lines")
    executors = [pod for pod in cluster.kubelet.running() if pod != driver]
    assert len(executors) == 2, driver.log
    os.kill(executors[0].process.pid, signal.SIGKILL)
    assert submitted.wait(200) == 0, submitted.report()
    assert cluster.phase(driver) == "Succeeded", driver.log
    check_counts(driver.folder, count)
    cluster.delete(driver)
    assert_nothing_is_left_of(cluster, driver)


@pytest.mark.long
def test_all_of_a_session_and_its_job_ends_with_the_pod_of_its_driver(
    cluster: KubernetesCluster, tmp_path: Path, started: list[Program]
) -> None:
    commands = Commands(tmp_path, started)
    driver = submit_session(commands, cluster)
    on_another_host = client_of(driver, cluster, commands)
    on_another_host("run", "-d", "--cluster", "nightly", "endless.py", "mine")
    await_in(driver, lambda: "number 3" in driver.log, "what the job prints")
    assert len(cluster.kubelet.running()) > 1
    cluster.delete(driver)
    assert_nothing_is_left_of(cluster, driver)
