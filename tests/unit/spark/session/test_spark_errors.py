"""The one line that a person needs, out of Spark's pages."""

import socket

import pytest

from headrace.core.types.pickles import pickle_value
from headrace.spark.session.spark_errors import (
    EnvironmentNotMadeError,
    UnusableEnvironmentError,
    environment_error_in,
    tidy,
    unusable_interpreter,
    unusable_worker,
    user_location_in,
)

PYTHON_FAILURE = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 \
(TID 7) (host executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ModuleNotFoundError: No module named 'airports'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Driver stacktrace:"""

LOST_EXECUTOR = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 \
(TID 7) (10.0.0.7 executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: \
Command exited with code 137
Driver stacktrace:"""


def test_a_python_exception_comes_first() -> None:
    text = tidy(PYTHON_FAILURE)
    assert text.split("\n", 1)[0] == "ModuleNotFoundError: No module named 'airports'"
    assert "in main" in text
    assert "PythonRunner" not in text


def test_a_lost_executor_is_named_first() -> None:
    assert tidy(LOST_EXECUTOR).startswith("ExecutorLostFailure (executor 1 exited")


def test_other_texts_stay_as_they_are() -> None:
    assert tidy("Job 3 cancelled part of cancelled job group x") == (
        "Job 3 cancelled part of cancelled job group x"
    )


FAILED_FUNCTION = """\
An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2107, in main
    process()
  File "/programs/flights.py", line 12, in hours
    return halve(minutes)
  File "/programs/times.py", line 3, in halve
    return 60 // minutes
  File "/usr/lib/site-packages/pyspark/serializers.py", line 9, in dump
    write()
ZeroDivisionError: integer division or modulo by zero
"""


def test_the_user_s_own_line_is_found_between_spark_s() -> None:
    assert user_location_in(FAILED_FUNCTION) == "/programs/times.py, line 3"
    assert user_location_in(LOST_EXECUTOR) == ""
    assert user_location_in('  File "/programs/times.py", line 3, in no_traceback') == ""


def test_a_worker_without_our_package_can_only_be_mended_by_the_user() -> None:
    error = unusable_worker("ModuleNotFoundError: No module named 'headrace'\n...")
    assert error is not None
    assert "No module named 'headrace'" in str(error)
    assert "PYSPARK_PYTHON" in str(error)


def test_another_python_is_named_with_both_versions() -> None:
    said = (
        "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in "
        "driver: 3.11, PySpark cannot run with different minor versions.\n..."
    )
    error = unusable_worker(said)
    assert error is not None
    assert "Python in worker has different version: 3.10 than that in driver: 3.11" in str(error)


def test_a_module_of_the_user_s_is_no_fault_of_the_workers() -> None:
    assert unusable_worker("ModuleNotFoundError: No module named 'rules'") is None
    assert unusable_worker("Python worker exited unexpectedly (crashed)") is None


def test_a_port_that_is_taken_on_a_worker_would_be_taken_again() -> None:
    error = unusable_worker(
        "headrace.core.errors.PortInUseError: port 50100 on 127.0.0.1 is in use: choose another one\n..."
    )
    assert str(error) == (
        "a TaskManager cannot start: port 50100 on 127.0.0.1 is in use: choose another one"
    )


LOST_TASK = "Lost task 0.3 in stage 3.0 (TID 7) (10.0.0.7 executor 1): "


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/other/python": error=2, No such file or directory',
            "No such file or directory",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/other/python": Exec failed, error: 13 (Permission denied) ',
            "Exec failed, error: 13 (Permission denied)",
        ),
        (
            "/opt/other/python: Error while finding module specification for 'headrace.spark.python_daemon' "
            "(ModuleNotFoundError: No module named 'headrace')",
            "the interpreter has no package 'headrace'",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11",
            "Python in worker has different version: 3.12 than that in driver: 3.11",
        ),
    ],
)
def test_an_interpreter_that_cannot_run_is_named_with_host_and_cause(said: str, why: str) -> None:
    error = unusable_interpreter(LOST_TASK + said, "/opt/other/python")
    assert error is not None
    assert f"'/opt/other/python' on host 10.0.0.7: {why}" in str(error)


@pytest.mark.parametrize(
    ("errno", "is_lasting"), [(2, True), (13, True), (11, False), (12, False), (24, False)]
)
@pytest.mark.parametrize("form", ["error={}, why", "Exec failed, error: {} (why) "])
def test_an_interpreter_is_tried_again_where_its_host_lacks_memory_or_processes_for_now(
    errno: int, is_lasting: bool, form: str
) -> None:
    said = f'Cannot run program "/opt/other/python": {form.format(errno)}'
    error = unusable_interpreter(LOST_TASK + said, "/opt/other/python")
    assert (error is not None) is is_lasting


def test_a_setting_that_a_task_manager_refuses_is_no_fault_of_its_interpreter() -> None:
    said = "headrace.core.errors.ConfigurationError: taskmanager.data.port is '70000'"
    error = unusable_interpreter(f"{said}\n{LOST_TASK}", "/opt/other/python")
    assert str(error) == "a TaskManager cannot start: taskmanager.data.port is '70000'"


@pytest.mark.parametrize("text", [LOST_EXECUTOR, PYTHON_FAILURE, "released"])
def test_other_ends_say_nothing_of_the_interpreter(text: str) -> None:
    assert unusable_interpreter(text, "/opt/other/python") is None


@pytest.mark.parametrize("kind", [UnusableEnvironmentError, EnvironmentNotMadeError])
def test_an_environment_that_a_host_cannot_make_is_told_with_the_host_and_all_that_pip_said(
    kind: type[UnusableEnvironmentError],
) -> None:
    cause = "the packages could not be installed: pip ended with 1\nERROR: No matching distribution"
    made = kind.here(cause)
    found = environment_error_in(pickle_value([made.as_result()]))
    assert (
        found is not None
        and found == str(made)
        and found.endswith(f" on host {socket.gethostname()}: {cause}")
    )
    error = unusable_interpreter(found, "environment:requirements@1")
    assert error is not None and (type(error), str(error)) == (kind, found)
    assert environment_error_in(pickle_value(["released"])) is None
