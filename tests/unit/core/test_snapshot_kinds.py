"""Kinds of snapshots: what follows from each, whatever the format."""

import pytest

from headrace.core.barriers import SavepointFormatType, SnapshotKind

CANONICAL, NATIVE = SavepointFormatType.CANONICAL, SavepointFormatType.NATIVE
SAVEPOINTS = [kind for kind in SnapshotKind if kind.is_savepoint]


@pytest.mark.parametrize("kind", SAVEPOINTS)
def test_the_format_changes_nothing_but_itself(kind: SnapshotKind) -> None:
    native, canonical = kind.in_format(NATIVE), kind.in_format(CANONICAL)
    assert kind in (native, canonical)
    assert (native.savepoint_format, canonical.savepoint_format) == ("NATIVE", "CANONICAL")
    assert (native.is_native, canonical.is_native) == (True, False)
    assert canonical is native.canonical is canonical.canonical
    for one in (native, canonical):
        assert one.is_savepoint
        assert (one.is_synchronous, one.is_drained) == (kind.is_synchronous, kind.is_drained)
        assert (one.in_format(NATIVE), one.in_format(CANONICAL)) == (native, canonical)


def test_a_job_stops_with_some_savepoints_and_is_drained_by_some_of_these() -> None:
    assert {kind.name for kind in SnapshotKind if kind.is_synchronous} == {
        "SAVEPOINT_SUSPEND",
        "SAVEPOINT_TERMINATE",
        "NATIVE_SAVEPOINT_SUSPEND",
        "NATIVE_SAVEPOINT_TERMINATE",
    }
    assert {kind.name for kind in SnapshotKind if kind.is_drained} == {
        "SAVEPOINT_TERMINATE",
        "NATIVE_SAVEPOINT_TERMINATE",
    }


@pytest.mark.parametrize("kind", [one for one in SnapshotKind if not one.is_savepoint])
def test_checkpoints_have_no_format(kind: SnapshotKind) -> None:
    assert (kind.savepoint_format, kind.is_native, kind.is_drained) == ("", False, False)
    with pytest.raises(AssertionError, match="the format of a checkpoint cannot be chosen"):
        kind.in_format(NATIVE)
