"""A failure travels through Spark's text to the driver."""

from headrace.core.errors import UserCodeError, wrap_user_error
from headrace.core.ids import JobVertexId
from headrace.spark.batch.stage_body import StageFailedError, failure_in

VERTEX = JobVertexId(b"v" * 16)


def test_an_error_is_found_in_the_text_of_spark_s_exception() -> None:
    error = UserCodeError("ValueError", "no: number", "Map", "program.py, line 3", "Traceback: ...")
    told = f"Job aborted: Lost task 0.0: {StageFailedError(error, VERTEX, 3)} at org.apache.spark"
    found = failure_in(told)
    assert found is not None
    told_first = "ValueError: no: number (in operator 'Map', program.py, line 3)"
    assert found.error.text.startswith(told_first)
    assert (found.vertex_id, found.subtask_index) == (VERTEX.hex(), 3)


def test_an_error_of_the_stream_is_found_in_that_of_the_function_which_asked_for_its_rows() -> None:
    error = UserCodeError("ValueError", "no", "Map", "program.py, line 3", "Traceback: ...")
    of_spark = RuntimeError(f"Job aborted: {StageFailedError(error, VERTEX, 3)} at org.apache")
    found = failure_in(str(wrap_user_error(of_spark, "Sink")))
    assert found is not None and found.error.text.startswith("ValueError: no (in operator 'Map'")


def test_other_texts_hold_none() -> None:
    assert failure_in("Job 3 cancelled: part of group") is None
