"""Configuration of a session that Headrace creates: the user's settings win, the rest is what TaskManagers need."""

import base64
import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.spark.session.authentication import (
    PAGE_FILTER,
    PAGE_KEY,
    missing_page_key,
)
from headrace.spark.session.session_configuration import (
    DriverAddresses,
    SessionPlan,
    driver_addresses,
    plan_session,
    settings_in_pod,
)


def plan(
    settings: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    submitted: dict[str, str] | None = None,
    archive: Path | None = None,
    root: Path = Path("/"),
) -> SessionPlan:
    return plan_session(
        Settings(settings),
        environ or {},
        cpu_count=4,
        python="/venv/bin/python",
        scratch=root / "scratch",
        log_configuration=root / "log.properties",
        submitted=submitted or {},
        archive=archive,
    )


@pytest.mark.parametrize(
    ("settings", "master"),
    [
        ({}, "local[8]"),
        ({"parallelism.default": "3"}, "local[7]"),
        ({"parallelism.default": "3", "headrace.spark.slots": "8"}, "local[12]"),
        ({"headrace.spark.spare-slots": "1"}, "local[5]"),
        ({"headrace.spark.master": "spark://host:7077"}, "spark://host:7077"),
        ({"spark.master": "local[9]"}, "local[9]"),
    ],
)
def test_the_embedded_master_has_room_for_taskmanagers_and_spark_s_own_jobs(
    settings: dict[str, str], master: str
) -> None:
    assert plan(settings).conf["spark.master"] == master


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon forks")
@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,1,1024]"])
def test_workers_on_this_host_are_forked_with_their_modules(master: str) -> None:
    key, settings = "spark.python.daemon.module", {"spark.master": master}
    assert importlib.util.find_spec(plan(settings).conf[key]) is not None
    assert plan({**settings, key: "own.daemon"}).conf[key] == "own.daemon"
    # Another interpreter may not have our modules, and where Spark brings them they are not there yet.
    assert key not in plan({**settings, "spark.pyspark.python": "/other/python"}).conf
    assert key not in plan(settings, environ={"PYSPARK_PYTHON": "/other/python"}).conf
    assert key not in plan(submitted=settings).conf
    assert key not in plan({"spark.master": "spark://host:7077"}).conf


def test_what_spark_submit_set_wins_over_our_defaults() -> None:
    conf = plan(submitted={"spark.master": "spark://h:1", "spark.ui.enabled": "true"}).conf
    assert conf["spark.master"] == "spark://h:1"
    assert conf["spark.ui.enabled"] == "true"
    assert "spark.driver.host" not in conf


def test_settings_of_the_command_line_win_over_spark_submit() -> None:
    conf = plan({"spark.ui.enabled": "false"}, submitted={"spark.ui.enabled": "true"}).conf
    assert conf["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("arguments", ["--master local[7] pyspark-shell", "--master=local[7] x"])
def test_a_master_in_spark_s_own_variable_is_obeyed(arguments: str) -> None:
    assert plan(environ={"PYSPARK_SUBMIT_ARGS": arguments}).conf["spark.master"] == "local[7]"


def test_a_local_master_is_bound_to_loopback_and_workers_run_this_interpreter() -> None:
    made = plan()
    assert made.conf["spark.driver.host"] == "127.0.0.1"
    assert made.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert made.environment["PYSPARK_PYTHON"] == "/venv/bin/python"


def test_an_interpreter_that_the_user_named_is_kept() -> None:
    made = plan(environ={"PYSPARK_PYTHON": "/other/python"})
    assert "PYSPARK_PYTHON" not in made.environment


def test_an_interpreter_for_workers_may_be_named_as_a_setting() -> None:
    made = plan({"spark.pyspark.python": "/workers/python"}, {"PYSPARK_PYTHON": "/other/python"})
    assert made.environment["PYSPARK_PYTHON"] == "/workers/python"


def test_the_jvm_s_temporary_files_lie_in_the_scratch_directory() -> None:
    conf = plan({"spark.driver.extraJavaOptions": "-Xss4m"}).conf
    assert conf["spark.driver.extraJavaOptions"].startswith("-Xss4m -Djava.io.tmpdir=/scratch")
    assert conf["spark.local.dir"] == "/scratch"


def test_executors_of_a_cluster_keep_theirs_in_their_working_directory() -> None:
    conf = plan({"spark.master": "local-cluster[2,2,1024]"}).conf
    assert "-Djava.io.tmpdir=." in conf["spark.executor.extraJavaOptions"]


@pytest.mark.parametrize(
    ("host", "bind_address", "bound", "advertised"),
    [
        ("10.0.0.7", "", "10.0.0.7", "10.0.0.7"),
        ("10.0.0.7", "0.0.0.0", "0.0.0.0", "10.0.0.7"),
        ("gateway.example", "172.17.0.2", "172.17.0.2", "gateway.example"),
        ("[fd00::2]", "[::]", "::", "fd00::2"),
        ("127.0.0.1", "0.0.0.0", "127.0.0.1", "127.0.0.1"),
        ("localhost", "", "127.0.0.1", "localhost"),
    ],
)
def test_the_control_plane_listens_where_spark_s_driver_does_or_on_loopback_alone(
    host: str, bind_address: str, bound: str, advertised: str
) -> None:
    conf = {"spark.driver.host": host, "spark.driver.bindAddress": bind_address}
    addresses = driver_addresses(conf, is_local=False)
    assert (addresses.bound, addresses.advertised) == (bound, advertised)


def test_a_local_master_listens_on_loopback_whatever_spark_s_driver_does() -> None:
    addresses = driver_addresses({"spark.driver.host": "10.0.0.7"}, is_local=True)
    assert (addresses.bound, addresses.advertised) == ("127.0.0.1", "127.0.0.1")


IN_POD = {"spark.kubernetes.submitInDriver": "true"}
SUBMITTED = {"spark.driver.host": "a-driver-svc.streams.svc"}
OPEN = {"rest.bind-address": "0.0.0.0"}
POD = DriverAddresses("10.0.0.7", "10.0.0.7")
SERVICE = DriverAddresses("10.0.0.7", "a-driver-svc.streams.svc")


@pytest.mark.parametrize("addresses", [POD, SERVICE])
def test_rest_in_a_driver_s_pod_is_where_executors_find_the_driver(
    addresses: DriverAddresses,
) -> None:
    settings = settings_in_pod(Settings(OPEN), IN_POD, SUBMITTED, addresses)
    assert settings.get("rest.address") == addresses.advertised
    names = settings.get("headrace.rest.allowed-hosts", "").split(",")
    assert sorted(names) == ["10.0.0.7", "a-driver-svc.streams.svc"]


def test_rest_in_a_driver_s_pod_keeps_the_name_that_it_was_given() -> None:
    given = {**OPEN, "rest.address": "own.example", "headrace.rest.allowed-hosts": "proxy.example"}
    settings = settings_in_pod(Settings(given), IN_POD, SUBMITTED, POD)
    assert settings.get("rest.address") == "own.example"
    assert settings.get("headrace.rest.allowed-hosts", "").startswith("proxy.example,10.0.0.7,")


@pytest.mark.parametrize(("given", "conf"), [({}, IN_POD), (OPEN, {})])
def test_rest_has_no_name_of_spark_s_on_loopback_or_elsewhere(
    given: dict[str, str], conf: dict[str, str]
) -> None:
    assert settings_in_pod(Settings(given), conf, SUBMITTED, POD).to_dict() == given


def test_directories_of_executors_on_this_host_lie_in_the_scratch_directory() -> None:
    settings = {"spark.master": "local-cluster[2,1,1024]"}
    made = plan(settings, environ={"SPARK_HOME": "/opt/spark"})
    assert made.environment["SPARK_HOME"] == "/scratch/spark"


def test_spark_is_where_the_user_has_it_where_no_directory_of_executors_comes_of_it() -> None:
    cluster = {"spark.master": "local-cluster[2,1,1024]"}
    assert "SPARK_HOME" not in plan().environment
    assert "SPARK_HOME" not in plan({"spark.master": "spark://host:7077"}).environment
    assert "SPARK_HOME" not in plan(submitted=cluster).environment


def test_the_driver_s_jvm_takes_its_classes_from_an_archive_that_is_there() -> None:
    key = "spark.driver.extraJavaOptions"
    assert (
        "-XX:SharedArchiveFile=/cache/a.jsa -Xlog:cds=off"
        in plan(archive=Path("/cache/a.jsa")).conf[key]
    )
    assert "Shared" not in plan().conf[key]


def test_java_options_with_paths_that_hold_spaces_and_quotes_stay_whole() -> None:
    root = Path("/it's a \\ b")
    made = plan({"spark.driver.extraJavaOptions": "-Da='1 2'"}, archive=root / "a.jsa", root=root)
    assert shlex.split(made.conf["spark.driver.extraJavaOptions"]) == [
        "-Da=1 2",
        f"-Djava.io.tmpdir={root}/scratch",
        "-XX:-UsePerfData",
        f"-Dlog4j2.configurationFile={root}/log.properties",
        f"-XX:SharedArchiveFile={root}/a.jsa",
        "-Xlog:cds=off",
    ]


@pytest.mark.parametrize(
    "given", ["-Xshare:off", "-XX:SharedArchiveFile=/mine", "-XX:DumpLoadedClassList=/list"]
)
def test_an_archive_of_classes_that_the_user_chose_is_not_replaced(given: str) -> None:
    conf = plan({"spark.driver.extraJavaOptions": given}, archive=Path("/cache/a.jsa")).conf
    assert given in conf["spark.driver.extraJavaOptions"]
    assert "/cache/a.jsa" not in conf["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("environ", "submitted"),
    [
        ({}, {"spark.master": "local[4]"}),
        ({}, {"spark.master": "local-cluster[2,1,1024]"}),
        ({}, {"spark.master": "spark://h:1", "spark.ui.port": "4050"}),
        ({"SPARK_LOCAL_IP": "0.0.0.0"}, {}),
    ],
)
def test_spark_s_own_page_is_off_and_ours_may_start(
    environ: dict[str, str], submitted: dict[str, str]
) -> None:
    made = plan(environ=environ, submitted=submitted)
    assert made.has_page
    assert made.conf["spark.ui.enabled"] == made.conf["spark.ui.killEnabled"] == "false"
    assert missing_page_key(made.conf) == {} and PAGE_KEY not in made.conf


@pytest.mark.parametrize(
    "given",
    [
        {"spark.ui.enabled": "true"},
        {"spark.ui.enabled": "false"},
        {"spark.ui.filters": "own.Filter"},
        {"spark.ui.enabled": "true", "spark.ui.filters": PAGE_FILTER},
    ],
)
def test_what_the_user_says_of_spark_s_page_holds(given: dict[str, str]) -> None:
    made = plan(given)
    assert not made.has_page
    assert made.conf.items() >= {"spark.ui.enabled": "false", **given}.items()
    assert "spark.ui.contentSecurityPolicy.enabled" not in made.conf


def test_a_page_of_the_user_s_behind_the_filter_gets_a_key_unless_it_has_one() -> None:
    conf = plan({"spark.ui.enabled": "true", "spark.ui.filters": PAGE_FILTER}).conf
    keys = {base64.urlsafe_b64decode(missing_page_key(conf)[PAGE_KEY]) for _ in range(2)}
    assert [len(key) for key in keys] == [32, 32]
    assert missing_page_key({**conf, PAGE_KEY: "own"}) == {}
