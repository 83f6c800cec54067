"""RemoteExecutor finds the cluster that the settings name, and refuses jobs that cannot run elsewhere."""

import contextlib
import os
from pathlib import Path

import msgspec
import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.client.job_client import JobClient
from headrace.client.cluster_descriptor import ClusterDescriptor
from headrace.client.remote_executor import (
    RemoteDataFrameError,
    RemoteExecutor,
    refuse_dataframes,
)
from headrace.client.rest_cluster_client import RestClusterClient
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, ProgramError
from headrace.core.ids import JobId
from headrace.graph.job_graph import ArtifactKind, JobArtifact, JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.rest.client_errors import NoClusterError, NoSuchClusterError, SeveralClustersError
from headrace.rest.home.connections import (
    ClusterConnection,
    FoundConnection,
    address_of,
    write_connection,
)
from headrace.spark.batch.batch_support import refuse_dataframes_of_others
from tests.unit.rest.fake_cluster import fake_cluster


def find(settings: Settings) -> FoundConnection:
    return ClusterDescriptor(settings).find()


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, None),
        ({"rest.address": "host"}, "host:8081"),
        ({"rest.port": "9000"}, "127.0.0.1:9000"),
        ({"rest.address": "host", "rest.port": "9000"}, "host:9000"),
        ({"rest.address": "host:7000"}, "host:7000"),
        ({"rest.address": "https://host:7000"}, "https://host:7000"),
        ({"rest.address": "::1", "rest.port": "9000"}, "[::1]:9000"),
    ],
)
def test_the_address_is_that_of_the_settings(settings: dict[str, str], address: str | None) -> None:
    assert address_of(Settings(settings)) == address


def test_a_range_of_ports_is_no_address() -> None:
    with pytest.raises(ConfigurationError, match="a single port"):
        address_of(Settings({"rest.port": "8081-8090"}))


def test_a_connection_file_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    file = write_connection(ClusterConnection("https://elsewhere:8081", "the-token"))
    found = find(Settings({"headrace.rest.connection-file": str(file)}))
    assert (found.connection.address, found.connection.token) == (
        "https://elsewhere:8081",
        "the-token",
    )
    with pytest.raises(ConfigurationError, match="no such file"):
        find(Settings({"headrace.rest.connection-file": f"{file}.gone"}))


def test_a_session_is_found_by_its_name_or_as_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    settings = {"execution.target": "session"}
    with pytest.raises(NoSuchClusterError, match="headrace cluster start"):
        find(Settings(settings))
    program = ClusterConnection("http://127.0.0.1:8081", "t", os.getpid(), "program")
    write_connection(program)
    for port, name in ((8082, "nightly"), (8083, "daily")):
        address = f"http://127.0.0.1:{port}"
        write_connection(ClusterConnection(address, "t", os.getpid(), name, is_session=True))
    named = Settings({**settings, "headrace.session.name": "daily"})
    assert find(named).connection.name == "daily"
    with pytest.raises(SeveralClustersError, match="nightly"):
        find(Settings(settings))


def test_without_any_cluster_it_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    with pytest.raises(NoClusterError, match="-m host:port"):
        RemoteExecutor(Settings({})).default_parallelism()


def job() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1], type_info=Types.LONG()).print()
    return generate_job_graph(env.get_stream_graph(), JobId(b"j" * 16), Settings({}))


def test_a_dataframe_is_refused_with_what_to_do() -> None:
    graph = job()
    vertex = graph.vertices[0]
    reader = msgspec.structs.replace(vertex.operators[0], coordinator="dataframe-source")
    vertex = msgspec.structs.replace(vertex, operators=(reader, *vertex.operators[1:]))
    graph = msgspec.structs.replace(graph, vertices=(vertex, *graph.vertices[1:]))
    with pytest.raises(RemoteDataFrameError, match="write it to files"):
        RemoteExecutor(Settings({})).submit(graph)


def test_a_log_of_batches_is_taken_by_any_cluster_and_a_table_by_none(tmp_path: Path) -> None:
    for form, is_taken in (("headrace", True), ("parquet", False)):
        env = StreamExecutionEnvironment.get_execution_environment()
        numbers = env.from_collection([1], type_info=Types.LONG())
        numbers.sink_to(DataFrameSink(tmp_path / form, form, mode="append"))
        graph = generate_job_graph(env.get_stream_graph(), JobId(b"j" * 16), Settings({}))
        for refuse in (refuse_dataframes, refuse_dataframes_of_others):
            with contextlib.nullcontext() if is_taken else pytest.raises(ProgramError):
                refuse(graph)


@pytest.mark.parametrize(
    ("configured", "slots", "free", "parallelism"),
    [("3", 8, 8, 3), (None, 8, 8, 8), (None, 8, 5, 5), (None, 8, 0, 1), (None, 0, 0, 1)],
)
def test_the_default_parallelism_is_the_clusters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: str | None,
    slots: int,
    free: int,
    parallelism: int,
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    config = [{"key": "parallelism.default", "value": configured}] if configured else []
    overview = {"slots-total": slots, "slots-available": free}
    answers = {"GET /jobmanager/config": config, "GET /overview": overview}
    with fake_cluster(answers, token="") as cluster:
        executor = RemoteExecutor(Settings({"rest.address": cluster.address}))
        assert executor.known_parallelism() is None
        assert executor.default_parallelism() == executor.known_parallelism() == parallelism
        executor.close()


class TakenJob(Exception):
    """Ends a submission, which a scripted cluster cannot follow."""


@pytest.mark.parametrize(
    ("of_cluster", "of_spark", "carried"),
    [
        ("", "", "python3.13"),
        ("python3.12", "", "python3.13"),
        ("python3.13", "", ""),
        ("", "python3.13", ""),
        ("python3.13", "python3.12", "python3.13"),
    ],
)
def test_a_job_names_its_interpreter_where_the_cluster_has_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_cluster: str, of_spark: str, carried: str
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    taken: list[JobGraph] = []

    def take(_: RestClusterClient, graph: JobGraph) -> JobClient:
        taken.append(graph)
        raise TakenJob

    monkeypatch.setattr(RestClusterClient, "submit_job", take)
    graph = msgspec.structs.replace(job(), settings={"python.executable": "python3.13"})
    config = [
        {"key": "python.executable", "value": of_cluster},
        {"key": "spark.pyspark.python", "value": of_spark},
    ]
    with fake_cluster({"GET /jobmanager/config": config}, token="") as cluster:
        executor = RemoteExecutor(Settings({"rest.address": cluster.address}))
        with pytest.raises(TakenJob):
            executor.submit(graph)
        executor.close()
    assert [one.python_executable for one in taken] == [carried]


def test_an_interpreter_in_an_archive_is_refused_in_batch_mode_before_a_cluster_is_looked_for() -> (
    None
):
    settings = {
        "python.archives": "venv.zip",
        "python.executable": "venv.zip/venv/bin/python",
        "execution.runtime-mode": "BATCH",
    }
    graph = msgspec.structs.replace(job(), settings=settings)
    with pytest.raises(ConfigurationError, match="run the job in STREAMING mode"):
        RemoteExecutor(Settings({})).submit(graph)


def test_a_job_with_requirements_runs_in_an_environment_of_its_own_on_any_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    taken: list[JobGraph] = []

    def take(_: RestClusterClient, graph: JobGraph) -> JobClient:
        taken.append(graph)
        raise TakenJob

    monkeypatch.setattr(RestClusterClient, "submit_job", take)
    requirements = JobArtifact(ArtifactKind.REQUIREMENTS, "requirements", "r.txt", b"x")
    settings = {"python.executable": "python3.13"}
    graph = msgspec.structs.replace(job(), settings=settings, artifacts=(requirements,))
    with fake_cluster({"GET /jobmanager/config": []}, token="") as cluster:
        executor = RemoteExecutor(Settings({"rest.address": cluster.address}))
        with pytest.raises(TakenJob):
            executor.submit(graph)
        executor.close()
    assert [one.python_executable for one in taken] == [f"environment:python3.13@{graph.job_id}"]
