"""Options of the commands with savepoints: the formats there are."""

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import JOB, fake_cluster


@pytest.mark.parametrize(
    "arguments",
    [
        ["savepoint", "--type", "parquet", JOB],
        ["stop", "-type", "PARQUET", JOB],
        ["cancel", "-s", "/saved", "--type", "Parquet", JOB],
    ],
)
def test_another_format_is_refused_with_those_there_are_before_the_cluster_is_asked(
    shell: Shell, arguments: list[str]
) -> None:
    with fake_cluster({}, token="") as cluster:
        outcome = shell(*arguments, "-m", cluster.authority)
    assert (outcome.code, outcome.out, cluster.requests) == (1, "", [])
    first = outcome.err.splitlines()[0]
    assert "'canonical', 'native'" in first
