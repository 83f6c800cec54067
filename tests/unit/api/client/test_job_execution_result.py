"""The result of a job as people see it."""

from headrace.api.client.job_client import JobExecutionResult
from headrace.core.ids import JobId


def test_a_result_shows_job_and_runtime() -> None:
    job_id = JobId(bytes(16))
    assert repr(JobExecutionResult(job_id, 12)) == f"JobExecutionResult(job {'00' * 16}, 12 ms)"
    assert repr(JobExecutionResult(job_id, 1, {"n": 2})).endswith("1 ms, accumulators={'n': 2})")
