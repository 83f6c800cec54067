"""`headrace run --target`: where jobs go, and which options fit together."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from headrace.api.executors import set_default_settings
from headrace.cli.program_options import ProgramOptions
from headrace.rest.client_errors import NoSuchClusterError, SeveralClustersError
from headrace.rest.home.connections import ClusterConnection, write_connection
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import TOKEN, fake_cluster


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    yield
    # A command that runs a program leaves its settings to the process, which ends with it elsewhere.
    set_default_settings({})


def session(port: int, name: str) -> Path:
    return write_connection(
        ClusterConnection(f"http://127.0.0.1:{port}", "t", os.getpid(), name, is_session=True)
    )


def chosen(
    target: str | None = None,
    cluster: str | None = None,
    address: str | None = None,
    *,
    is_detached: bool = False,
    definitions: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    options = ProgramOptions(tuple(definitions), target=target, address=address)
    return options.settings(cluster_name=cluster, is_detached=is_detached)


def test_without_a_target_the_program_has_a_cluster_of_its_own() -> None:
    assert chosen() == {}
    assert chosen(is_detached=True) == {}
    assert chosen("application") == chosen("local") == {"execution.target": "spark"}


def test_a_session_is_found_by_its_name_or_as_the_only_one() -> None:
    session(8081, "nightly")
    wanted = {"execution.target": "session", "headrace.session.name": "nightly"}
    assert chosen("session") == chosen("session", "nightly") == chosen(None, "nightly") == wanted
    assert chosen("session", is_detached=True) == {**wanted, "execution.attached": "false"}


def test_a_setting_may_name_the_session() -> None:
    session(8081, "nightly")
    session(8082, "daily")
    named = [("headrace.session.name", "daily")]
    assert chosen("session", definitions=named)["headrace.session.name"] == "daily"
    assert chosen("session", "nightly", definitions=named)["headrace.session.name"] == "nightly"


def test_no_session_or_several_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(NoSuchClusterError, match="headrace cluster start"):
        chosen("session")
    session(8081, "nightly")
    session(8082, "daily")
    with pytest.raises(SeveralClustersError, match="daily"):
        chosen("session")
    with pytest.raises(NoSuchClusterError, match="called 'weekly'"):
        chosen("session", "weekly")


def test_each_job_may_have_a_cluster_of_its_own() -> None:
    assert chosen("per-job") == {"execution.target": "per-job"}
    detached = {"execution.target": "per-job", "execution.attached": "false"}
    assert chosen("per-job", is_detached=True) == detached


def test_a_cluster_per_job_with_high_availability_is_refused_before_the_program_begins(
    shell: Shell, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('begun')\n")
    storage = ("-D", f"high-availability.storageDir={tmp_path / 'ha'}")
    for target in (["--target", "per-job"], ["-D", "execution.target=per-job"]):
        refused = shell("run", *target, *storage, str(program))
        assert (refused.code, refused.out) == (1, "")
        assert "headrace run -d --supervise -D high-availability.type=" in refused.err
        unset = ("-D", "high-availability.type=NONE")
        assert shell("run", *target, *storage, *unset, str(program)).out == "begun\n"


def test_an_address_is_that_of_a_remote_cluster() -> None:
    wanted = {"execution.target": "remote", "rest.address": "host:8081"}
    assert chosen(None, None, "host:8081") == chosen("remote", None, "host:8081") == wanted


@pytest.mark.parametrize(
    ("target", "cluster", "address", "text"),
    [
        ("session", None, "host:8081", "-m needs --target remote"),
        ("remote", "nightly", None, "--cluster needs --target session"),
        ("application", None, "host:8081", "-m needs --target remote"),
        (None, "nightly", "host:8081", "--cluster needs --target session"),
    ],
)
def test_options_of_another_target_are_refused(
    target: str | None, cluster: str | None, address: str | None, text: str
) -> None:
    with pytest.raises(click.UsageError, match=text):
        chosen(target, cluster, address)


def test_a_wrong_token_of_the_environment_is_refused_by_a_session_and_named(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from headrace.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute()\n"
    )
    with fake_cluster({}) as cluster:
        write_connection(
            ClusterConnection(cluster.address, TOKEN, os.getpid(), "nightly", is_session=True)
        )
        monkeypatch.setenv("HEADRACE_TOKEN", "of-another")
        refused = shell("run", "--target", "session", str(program))
    assert refused.code == 1
    assert "the token from HEADRACE_TOKEN is not the token of the cluster at" in refused.err
    assert "unset HEADRACE_TOKEN" in refused.err
