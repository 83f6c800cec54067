"""The start-up checklist: what is refused, what is only named, and what each finding says."""

import pytest

from headrace.spark.master import parse_master
from headrace.spark.session.checklist import (
    SESSION_SETTINGS,
    ChecklistError,
    Severity,
    check_configuration,
    refuse_contradictions,
)

GOOD = {"spark.master": "local[4]", **SESSION_SETTINGS}


def test_the_settings_we_give_a_session_pass_without_a_finding() -> None:
    assert check_configuration(GOOD) == ()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spark.speculation", "true", "second copy"),
        ("spark.python.worker.killOnIdleTimeout", "true", "idle"),
        ("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "true", "idle"),
        ("spark.executor.pyspark.memory", "1g", "address space"),
        ("spark.remote", "sc://host", "spark-submit"),
    ],
)
def test_a_contradiction_is_refused_and_says_why(key: str, value: str, said: str) -> None:
    with pytest.raises(ChecklistError) as caught:
        refuse_contradictions({**GOOD, key: value})
    first_line = str(caught.value).split("\n", 1)[0]
    assert f"{key}={value}" in first_line
    assert said in first_line


def test_every_contradiction_is_named_at_once() -> None:
    with pytest.raises(ChecklistError) as caught:
        refuse_contradictions(
            {**GOOD, "spark.speculation": "true", "spark.executor.pyspark.memory": "1g"}
        )
    assert len(caught.value.findings) == 2


def test_a_missing_fault_handler_is_only_a_warning() -> None:
    conf = {**GOOD, "spark.python.worker.faulthandler.enabled": "false"}
    assert [one.severity for one in refuse_contradictions(conf)] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("master", "is_local", "threads", "executors", "cores"),
    [
        ("local", True, 1, None, None),
        ("local[*]", True, 8, None, None),
        ("local[3]", True, 3, None, None),
        ("local[3,4]", True, 3, None, None),
        ("local-cluster[2,4,1024]", True, None, 2, 4),
        ("spark://host:7077", False, None, None, None),
        ("yarn", False, None, None, None),
    ],
)
def test_a_master_url_says_what_it_fixes(
    master: str, is_local: bool, threads: int | None, executors: int | None, cores: int | None
) -> None:
    kind = parse_master(master, cpu_count=8)
    assert kind.is_local is is_local
    assert kind.thread_count == threads
    assert kind.executor_count == executors
    assert kind.cores_per_executor == cores
