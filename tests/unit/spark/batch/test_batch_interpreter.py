"""A job in BATCH mode that names an interpreter which cannot run is told so by path, host and cause."""

from headrace.spark.batch.batch_job_master import told_of


def test_an_interpreter_that_cannot_run_stages_is_named() -> None:
    error = RuntimeError(
        "Lost task 0.3 in stage 3.0 (TID 7) (10.0.0.7 executor 1): java.io.IOException: "
        'Cannot run program "/opt/other/python": error=2, No such file or directory'
    )
    told = told_of(error, "/opt/other/python")
    assert told.class_name == "UnusableInterpreterError"
    assert "'/opt/other/python' on host 10.0.0.7: No such file or directory" in told.text
    assert told_of(error, "").class_name == "RuntimeError"
