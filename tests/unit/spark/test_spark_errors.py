"""The one line that a person needs, out of Spark's pages."""

from headrace.spark.spark_errors import tidy

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
