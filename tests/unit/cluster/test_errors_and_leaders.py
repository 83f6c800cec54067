"""What clients are told of errors, which versions must agree, and who leads."""

from headrace.cluster.dispatcher.archive import ArchivedJob, JobArchive
from headrace.cluster.error_reports import error_info_of, first_line, full_text
from headrace.cluster.job_master.failover import Failure, FailureHistory
from headrace.cluster.job_master.restart_strategies import NoRestart
from headrace.cluster.leadership import RESOURCE_MANAGER, EmbeddedLeadership, LeaderInformation
from headrace.cluster.versions import find_mismatch, software_versions
from headrace.core.errors import ConfigurationError, RemoteError, UserCodeError
from headrace.core.ids import JobId, ResourceManagerId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.job_master import JobDetails
from headrace.gateways.messages import ErrorInfo


def test_a_user_error_says_cause_operator_and_place_on_its_first_line() -> None:
    error = UserCodeError("ValueError", "bad\nrecord", "Map", "f.py, line 3", "Traceback…")
    info = error_info_of(error)
    assert info.text == "ValueError: bad (in operator 'Map', f.py, line 3)"
    assert full_text(info).endswith("Traceback…")


def test_other_errors_are_placed_by_their_task() -> None:
    info = error_info_of(KeyError("x"), "task 'Map (1/2)'")
    assert first_line(info) == "KeyError: 'x' (in task 'Map (1/2)')"
    assert "KeyError" in info.remote_traceback


def test_errors_of_our_own_speak_for_themselves() -> None:
    info = error_info_of(ConfigurationError("a.b", "c", "no"))
    assert info.text == "option 'a.b' has the value 'c': no"
    assert (info.domain, info.recoverable) == ("USER", False)


def test_an_error_of_another_process_keeps_its_class_and_traceback() -> None:
    info = error_info_of(RemoteError("zoo.LionError", "roar", "Traceback of the lion"))
    assert info.class_name == "zoo.LionError"
    assert info.remote_traceback == "Traceback of the lion"


def test_a_consequence_gives_way_to_the_cause() -> None:
    history = FailureHistory(NoRestart())
    lost = Failure(ErrorInfo("ConnectionLostError", "lost", "EXTERNAL", True))
    cause = Failure(ErrorInfo("UserCodeError", "bad", "USER", True))
    late = Failure(ErrorInfo("UserCodeError", "also bad", "USER", True))
    history.decide(lost, 0)
    for failure in (cause, late):
        history.refine(failure)
    assert history.cause == cause
    assert list(history.recent) == [lost, cause, late]


def test_versions_of_one_process_agree_with_themselves() -> None:
    assert find_mismatch(software_versions(), software_versions(), "tm") is None


def test_the_first_version_that_differs_is_named_with_what_to_do() -> None:
    worker = {**software_versions(), "pyarrow": "1.0"}
    mismatch = find_mismatch(software_versions(), worker, "tm-1")
    assert mismatch is not None
    assert str(mismatch).startswith("version of pyarrow differs")
    assert "PYSPARK_PYTHON" in str(mismatch)


def test_a_confirmed_leader_is_published_and_a_replaced_one_is_not() -> None:
    leadership = EmbeddedLeadership(SeededRandom(1))
    seen: list[LeaderInformation | None] = []
    stop = leadership.listen(RESOURCE_MANAGER, seen.append)
    first = leadership.grant(RESOURCE_MANAGER, ResourceManagerId)
    second = leadership.grant(RESOURCE_MANAGER, ResourceManagerId)
    assert first != second
    assert not leadership.confirm(RESOURCE_MANAGER, first, "old")
    assert leadership.confirm(RESOURCE_MANAGER, second, "new")
    leadership.revoke(RESOURCE_MANAGER, first)
    assert leadership.leader_of(RESOURCE_MANAGER) == LeaderInformation("new", second)
    leadership.revoke(RESOURCE_MANAGER, second)
    stop()
    leadership.confirm(RESOURCE_MANAGER, second, "too late")
    assert seen == [None, LeaderInformation("new", second), None]


def test_the_archive_forgets_the_oldest_job_beyond_its_capacity() -> None:
    archive = JobArchive(2)
    ids = [JobId(bytes([number]) * 16) for number in range(3)]
    for job_id in ids:
        details = JobDetails(job_id, "job", JobStatus.FINISHED, {}, ())
        archive.add(ArchivedJob(details, JobResult(job_id, "job", JobStatus.FINISHED, 1, {}), {}))
    assert archive.find(ids[0]) is None
    assert [job.details.job_id for job in archive.jobs()] == ids[1:]
