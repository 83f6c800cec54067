"""Watches over a run: what checkpoints held in flight, and when a recovery ends."""

from pathlib import Path

from headrace.checkpoint.handles import CheckpointMetrics
from headrace.core.barriers import SnapshotKind
from headrace.gateways.checkpoint_statistics import CheckpointInfo, CheckpointOverview
from testkit.chaos.recovery_watch import RecoveryWatch


def test_the_most_that_a_checkpoint_held_of_what_was_in_flight_is_kept() -> None:
    watch = RecoveryWatch(lambda: ())
    watch.look_at_checkpoints(CheckpointOverview())
    assert watch.in_flight_bytes == 0
    for count in (7, 3):
        slowest = CheckpointMetrics(in_flight_bytes=count)
        info = CheckpointInfo(1, SnapshotKind.CHECKPOINT, 0, 0, 0, 0, "", slowest)
        watch.look_at_checkpoints(CheckpointOverview(latest_completed=info))
    assert watch.in_flight_bytes == 7


def test_a_recovery_ends_when_everything_ran_again_after_it_was_seen_not_to(tmp_path: Path) -> None:
    watch = RecoveryWatch(lambda: sorted(tmp_path.iterdir()))
    watch.look(False)
    watch.look(True)
    assert watch.recoveries_s == []
    (tmp_path / "first").touch()
    watch.look(True)  # the death of the process is not known yet
    assert watch.recoveries_s == []
    watch.look(False)
    (tmp_path / "second").touch()
    watch.look(True)
    assert len(watch.recoveries_s) == 1
    (tmp_path / "third").touch()
    watch.look(False)
    watch.look(True)
    assert len(watch.recoveries_s) == 2
