"""Many jobs under leaders that follow on each other: places of entries that leaders took go with their jobs."""

from pathlib import Path

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from testkit.faulty_file_system import faults_of
from tests.unit.cluster.high_availability.successive_leaders import SuccessiveLeaders

LEADER_COUNT = 20
JOB_COUNT = 10


@pytest.mark.slow
@pytest.mark.parametrize("deletes", ["true", "false"])
def test_entries_of_leaders_are_of_jobs_that_run_and_go_with_them(
    deletes: str, tmp_path: Path
) -> None:
    leaders = SuccessiveLeaders(
        str(tmp_path), tmp_path, **{"job-result-store.delete-on-commit": deletes}
    )
    taken_places: list[int] = []
    for _ in range(LEADER_COUNT):
        known = {job.hex() for job in leaders.running}
        leaders.lead(JOB_COUNT)
        places = [name for name in leaders.entries() if "_DIRTY-" in name]
        assert {name.partition("_")[0] for name in places} <= known, "places of jobs that are gone"
        taken_places.append(len(places))
        assert len(leaders.terms()) <= 2
    assert leaders.taken_count == 200
    assert max(taken_places[3:]) > 0, "no leader took a place"
    # A quarter of the jobs outlives each leader: what is there does not depend on how many there have been.
    assert max(taken_places[LEADER_COUNT // 2 :]) <= 2 * max(taken_places[: LEADER_COUNT // 2])
    leaders.end_all()
    clean = {name for name in leaders.entries() if "_DIRTY-" not in name}
    assert len(clean) == (0 if deletes == "true" else 200)
    assert len(leaders.entries()) == len(clean)
    assert leaders.stored() == []


def test_a_job_stays_dirty_until_a_leader_can_delete_its_checkpoints(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    query = f"run={tmp_path.name}"
    uri = f"faulty://{checkpoints}?{query}"
    leaders = SuccessiveLeaders(str(tmp_path / "ha"), tmp_path, **{CHECKPOINT_DIRECTORY.key: uri})
    job_id = leaders.die_before_clean_up()
    faults_of(query).fail_writes = 1.0
    unclean_count, left = leaders.clean_up()
    assert unclean_count == 1 and left
    assert (checkpoints / job_id.hex()).exists()
    assert len(leaders.entries()) == 1 and leaders.stored() != [], "it is forgotten"
    assert leaders.clean_up(meanwhile=faults_of(query).heal) == (1, [])
    assert not (checkpoints / job_id.hex()).exists()
    assert leaders.entries() == [] and leaders.stored() == []
    assert leaders.clean_up() == (0, [])
