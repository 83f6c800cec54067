"""Options of the commands with savepoints: the one format there is."""

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, fake_cluster


@pytest.mark.parametrize(
    "arguments",
    [
        ["savepoint", "--type", "native", JOB],
        ["stop", "-type", "NATIVE", JOB],
        ["cancel", "-s", "/saved", "--type", "Native", JOB],
    ],
)
def test_the_native_format_is_refused_before_the_cluster_is_asked(
    shell: Shell, arguments: list[str]
) -> None:
    with fake_cluster({}, token="") as cluster:
        outcome = shell(*arguments, "-m", cluster.authority)
    assert (outcome.code, outcome.out, cluster.requests) == (1, "", [])
    first = outcome.err.splitlines()[0]
    assert "savepoints have the canonical format" in first
    assert "NATIVE" not in outcome.err
