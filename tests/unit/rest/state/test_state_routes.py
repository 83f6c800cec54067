"""The state browser's routes before a running job and before its snapshots, which lie in files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headrace.checkpoint.errors import (
    StateKeyMismatchError,
    StateReadsBusyError,
    SubtaskNotReadableError,
)
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.core.barriers import SnapshotKind
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.gateways.checkpoint_statistics import CheckpointStatus, RestoredCheckpoint
from headrace.gateways.errors import StateReadTimeoutError
from tests.unit.rest.golden_shapes import assert_golden
from tests.unit.rest.sample_cluster import (
    FAILED_JOB,
    OPERATOR,
    RUNNING_JOB,
    START_MS,
    STATISTICS,
    checkpoint,
)
from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster
from tests.unit.state_processor.saved import UID, savepoint, settings_in

STATE = f"/jobs/{RUNNING_JOB.hex()}/state"
Saved = tuple[CompletedCheckpoint, Settings]
OF_COUNT = f"{STATE}/operators/count"
OF_SNAPSHOT = f"{STATE}/operators/{UID}"
SAVEPOINT = 7


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("saved")
    own = settings_in(folder)
    return savepoint(folder / "savepoints" / "savepoint-7", own), own


@contextmanager
def serving(folder: Path, saved: Saved) -> Iterator[ServedCluster]:
    """A cluster whose running job has reported a savepoint in files, among snapshots that cannot be read."""
    snapshot, own = saved
    done = structs.replace(
        checkpoint(SAVEPOINT, CheckpointStatus.COMPLETED),
        kind=SnapshotKind.SAVEPOINT,
        savepoint_format="CANONICAL",
    )
    native = structs.replace(
        done, kind=SnapshotKind.NATIVE_SAVEPOINT, savepoint_format="NATIVE", checkpoint_id=4
    )
    history = (
        checkpoint(9, CheckpointStatus.IN_PROGRESS),
        structs.replace(done, checkpoint_id=8, external_path="s3://id:******@bucket/chk-8"),
        structs.replace(done, external_path=snapshot.uri),
        structs.replace(
            done,
            checkpoint_id=6,
            kind=SnapshotKind.CHECKPOINT,
            savepoint_format="",
            external_path="",
        ),
        structs.replace(done, checkpoint_id=5, is_discarded=True),
        structs.replace(native, external_path=str(folder / "gone")),
    )
    restored = RestoredCheckpoint(2, START_MS, SnapshotKind.NATIVE_SAVEPOINT, str(folder / "chk-2"))
    with (
        pytest.MonkeyPatch.context() as patch,
        served_cluster(folder / "home", patch, {"web.refresh-interval": "1 ms"}) as found,
    ):
        found.dispatcher.statistics = structs.replace(
            STATISTICS, latest_completed=None, history=history, restored=restored
        )
        found.dispatcher.settings = {
            **own.to_dict(),
            "execution.checkpointing.savepoint-dir": str(folder / "edited"),
        }
        yield found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, saved: Saved) -> Iterator[ServedCluster]:
    """The cluster, for all tests that only read."""
    with serving(tmp_path_factory.mktemp("served"), saved) as found:
        yield found


@pytest.fixture
def own_cluster(tmp_path: Path, saved: Saved) -> Iterator[ServedCluster]:
    """The cluster, for one test that changes something."""
    with serving(tmp_path, saved) as found:
        yield found


def edit(
    served: ServedCluster, *edits: dict[str, Any], snapshot: int = SAVEPOINT
) -> dict[str, Any]:
    """Ask for edits and return the answer that tells what became of them."""
    body = {"snapshot": snapshot, "reason": "counted twice", "edits": list(edits)}
    asked = served.ask("POST", f"{STATE}/edits", body)
    assert_golden("POST /jobs/{jobid}/state/edits", asked.json, asked.status)
    path = f"{STATE}/edits/{asked.json['request-id']}"
    return served.get_until(path, lambda found: found["status"]["id"] == "COMPLETED").json


def test_operators_of_the_running_job_and_its_snapshots_are_listed(served: ServedCluster) -> None:
    found = served.get(STATE).json
    assert_golden("GET /jobs/{jobid}/state", found)
    (operator,) = found["operators"]
    assert operator == {
        "id": OPERATOR.operator_id.hex(),
        "uid": "count",
        "name": "Count",
        "vertex": "Count",
        "parallelism": 2,
        "max-parallelism": 128,
        "size": None,
        "rows": None,
    }
    assert (found["snapshot"], found["problem"]) == (None, None)
    assert found["backend"] == "HashMapStateBackend"
    assert [(one["id"], one["kind"]) for one in found["snapshots"]] == [
        (8, "savepoint"), (7, "savepoint"), (6, "checkpoint"), (5, "savepoint"), (4, "savepoint"), (2, "restored"),
    ]  # fmt: skip
    assert {one["id"]: one["savepoint-format"] for one in found["snapshots"]} == {
        8: "CANONICAL", 7: "CANONICAL", 6: None, 5: "CANONICAL", 4: "NATIVE", 2: "NATIVE",
    }  # fmt: skip
    problems = {one["id"]: one["problem"] for one in found["snapshots"]}
    assert (problems[7], problems[4], problems[2]) == (None, None, None)
    assert "contains a secret" in problems[8]
    assert "driver's memory" in problems[6]
    assert "replaced" in problems[5]


def test_nothing_reads_state_before_somebody_asks_for_it(own_cluster: ServedCluster) -> None:
    own_cluster.get(STATE)
    assert "read_state" not in own_cluster.dispatcher.calls


def test_an_ended_job_says_so_and_has_its_snapshots(served: ServedCluster) -> None:
    found = served.get(f"/jobs/{FAILED_JOB.hex()}/state").json
    assert found["operators"] == []
    assert "FAILED" in found["problem"]
    assert SAVEPOINT in [one["id"] for one in found["snapshots"]]
    rows = f"/jobs/{FAILED_JOB.hex()}/state/operators/{UID}/rows?state=count"
    assert served.get(rows).status == 409
    assert len(served.get(f"{rows}&snapshot={SAVEPOINT}").json["rows"]) == 6


def test_sizes_are_summed_over_subtasks_with_their_skew(served: ServedCluster) -> None:
    found = served.get(OF_COUNT).json
    assert_golden("GET /jobs/{jobid}/state/operators/{operatorid}", found)
    assert (found["title"], found["taken-at"], found["watermark"]) == (
        "count",
        START_MS + 1,
        START_MS - 1_000,
    )
    count, timers = found["states"]
    assert (count["table"], count["name"], count["kind"]) == ("keyed", "count", "value")
    assert (count["rows"], count["size"], count["unreadable"]) == (4, 300, ["value"])
    assert count["subtask-skew"] == pytest.approx(4 / 3)
    assert [one["size"] for one in count["subtasks"]] == [100, 200]
    assert [one["key-group"] for one in count["key-groups"]] == [1, 0], "the largest is first"
    assert {one["key"] for one in count["keys"]} == {"0", "1"}
    (of_event_time,) = timers["timers"]
    assert (of_event_time["domain"], of_event_time["next"]) == ("event", START_MS + 500)
    assert of_event_time["due"]["1 s"] == 2


def test_rows_of_the_running_job_show_pickles_as_bytes_and_say_so(served: ServedCluster) -> None:
    found = served.get(f"{OF_COUNT}/rows?state=count").json
    assert [(one["name"], one["is-readable"]) for one in found["columns"]] == [
        ("key_group", True),
        ("key", True),
        ("value", False),
    ]
    assert [(one["subtask"], one["values"]) for one in found["rows"]] == [
        (0, [0, 0, "0x61"]),
        (0, [0, 10, "0x62"]),
        (1, [1, 1, "0x61"]),
        (1, [1, 11, "0x62"]),
    ]
    assert found["notes"] == []


def test_no_more_rows_are_given_than_were_asked_for(served: ServedCluster) -> None:
    found = served.get(f"{OF_COUNT}/rows?state=count&limit=1").json
    assert_golden("GET /jobs/{jobid}/state/operators/{operatorid}/rows", found)
    assert len(found["rows"]) == 1
    assert "more than 1 rows" in found["notes"][0]
    found = served.get(f"{OF_COUNT}/rows?state=count&limit=1&snapshot=7&table=keyed").status
    assert found == 404, "the snapshot has another operator"


def test_one_subtask_is_asked_where_one_is_named(own_cluster: ServedCluster) -> None:
    found = own_cluster.get(f"{OF_COUNT}/rows?state=count&subtask=1").json
    assert {one["subtask"] for one in found["rows"]} == {1}
    assert own_cluster.dispatcher.calls["read_state"] == 1


def test_operators_and_states_of_a_snapshot_have_the_sizes_of_its_files(
    served: ServedCluster,
) -> None:
    (operator,) = served.get(f"{STATE}?snapshot=7").json["operators"]
    assert (operator["uid"], operator["vertex"], operator["parallelism"]) == (UID, None, 2)
    assert operator["rows"] > 0 < operator["size"]
    found = served.get(f"{OF_SNAPSHOT}?snapshot=7").json
    states = {(one["table"], one["name"]): one for one in found["states"]}
    assert states.keys() >= {("keyed", "count"), ("keyed", "words"), ("timers", "timers")}
    count = states["keyed", "count"]
    assert (count["kind"], count["rows"]) == ("value", 6)
    assert sum(one["rows"] for one in count["subtasks"]) == 6
    assert sum(one["size"] for one in count["subtasks"]) == count["size"] > 0
    assert count["subtask-skew"] >= 1


def test_key_groups_keys_and_timers_of_a_snapshot_are_counted_from_its_rows(
    served: ServedCluster,
) -> None:
    found = served.get(f"{OF_SNAPSHOT}?snapshot=7").json
    states = {(one["table"], one["name"]): one for one in found["states"]}
    count = states["keyed", "count"]
    assert {one["key"]: one["rows"] for one in count["keys"]} == {str(key): 1 for key in range(6)}
    assert sum(one["rows"] for one in count["key-groups"]) == 6
    assert {one["subtask"] for one in count["key-groups"]} == {0, 1}
    assert (count["are-keys-exact"], count["is-partial"]) == (True, False)
    (timers,) = states["timers", "timers"]["timers"]
    assert sum(timers["due"].values()) == 6


def values_of(answer: Answer, name: str) -> list[Any]:
    place = [one["name"] for one in answer.json["columns"]].index(name)
    return sorted(one["values"][place] for one in answer.json["rows"])


def test_rows_of_a_snapshot_are_found_by_key_and_subtask(served: ServedCluster) -> None:
    path = f"{OF_SNAPSHOT}/rows?snapshot=7&state=count"
    assert values_of(served.get(path), "key") == [0, 1, 2, 3, 4, 5]
    assert values_of(served.get(f"{path}&keys=[3,5,99]"), "key") == [3, 5]
    both = [values_of(served.get(f"{path}&subtask={index}"), "key") for index in (0, 1)]
    assert sorted(both[0] + both[1]) == [0, 1, 2, 3, 4, 5]
    assert served.get(path).json["notes"] == []
    assert "more than 2" in served.get(f"{path}&limit=2").json["notes"][0]
    timers = served.get(f"{OF_SNAPSHOT}/rows?snapshot=7&state=timers&table=timers")
    assert len(values_of(timers, "ts")) == 6
    words = served.get(f"{OF_SNAPSHOT}/rows?snapshot=7&state=words&keys=[2]")
    assert values_of(words, "map_key") == ["x", "y"]


ERRORS = [
    (f"{OF_COUNT}/rows?state=nothing", 404, "no state 'nothing'"),
    (f"{OF_COUNT}/rows?state=count&table=items", 404, "has no table 'items'"),
    (f"{OF_COUNT}/rows?state=count&table=nothing", 400, "query parameter (table)"),
    (f"{OF_COUNT}/rows", 400, "query parameter (state)"),
    (f"{OF_COUNT}/rows?state=count&limit=1001", 400, "query parameter (limit)"),
    (f"{OF_COUNT}/rows?state=count&subtask=2", 404, "no subtask 2"),
    (f"{OF_COUNT}/rows?state=count&keys=3", 400, "not a JSON list of keys"),
    (f"{OF_COUNT}/rows?state=count&keys=[1,%22a%22]", 400, "not all of one type"),
    (f"{STATE}/operators/nobody", 404, "nobody"),
    (f"{STATE}?snapshot=3", 404, "no recorded snapshot 3"),
    (f"{STATE}?snapshot=4", 404, "gone"),
    (f"{STATE}?snapshot=5", 409, "replaced"),
    (f"{STATE}?snapshot=6", 409, "driver's memory"),
    (f"{STATE}?snapshot=-1", 400, "query parameter (snapshot)"),
    (f"{OF_SNAPSHOT}?snapshot=8", 409, "secret"),
    (f"{OF_SNAPSHOT}/rows?snapshot=7&state=count&keys=[%22a%22]", 400, "must be int64"),
    (f"{OF_SNAPSHOT}/rows?snapshot=7&state=nothing", 404, "no state 'nothing'"),
    (f"{STATE}/edits/{'0' * 32}", 404, "There is no state edit with triggerId"),
]


@pytest.mark.parametrize(("path", "status", "text"), ERRORS)
def test_what_cannot_be_read_is_said(
    served: ServedCluster, path: str, status: int, text: str
) -> None:
    found = served.get(path)
    assert (found.status, list(found.json)) == (status, ["errors"]), found.body
    assert text in found.errors


FAILURES = [
    (SubtaskNotReadableError("'Count (1/2)'", "it is CREATED"), 409),
    (StateReadsBusyError(8), 503),
    (StateReadTimeoutError("'Count (1/2)'", 5_000), 503),
    (StateKeyMismatchError("count", "they are texts"), 400),
]


@pytest.mark.parametrize(("failure", "status"), FAILURES)
def test_a_subtask_that_cannot_answer_is_told(
    own_cluster: ServedCluster, failure: Exception, status: int
) -> None:
    own_cluster.dispatcher.read_failure = failure
    found = own_cluster.get(f"{OF_COUNT}/rows?state=count")
    assert (found.status, found.errors) == (status, str(failure))


def test_edits_make_a_new_savepoint_in_the_folder_of_the_job(
    own_cluster: ServedCluster, saved: Saved, tmp_path: Path
) -> None:
    answer = edit(
        own_cluster,
        {"action": "set", "operator": UID, "state": "count", "key": 3, "value": -1},
        {"action": "delete", "operator": UID, "state": "count", "key": 4},
        {"action": "delete-key", "operator": UID, "key": 5},
    )
    assert_golden("GET /jobs/{jobid}/state/edits/{triggerid}", answer)
    found = answer["operation"]
    folder = Path(found["location"].removeprefix("file:"))
    assert folder.parent == tmp_path / "edited"
    assert folder.name.startswith(f"savepoint-{RUNNING_JOB.hex()[:6]}-")
    changed = {one["state"]: one for one in found["changes"] if "replaced" in one["action"]}
    assert (changed["count"]["changed"], changed["count"]["removed"]) == (1, 1)
    done = own_cluster.dispatcher.statistics.history[2]
    own_cluster.dispatcher.statistics = structs.replace(
        STATISTICS,
        latest_completed=None,
        history=(structs.replace(done, checkpoint_id=10, external_path=str(folder)),),
    )
    path = f"{OF_SNAPSHOT}/rows?snapshot=10&state=count"
    answer = own_cluster.get_until(path, lambda found: "rows" in found)
    rows = dict(zip(values_of(answer, "key"), [0] * 4, strict=True))
    assert list(rows) == [0, 1, 2, 3]
    assert -1 in values_of(answer, "value")
    events = own_cluster.get(f"{OF_SNAPSHOT}/rows?snapshot=10&state=events")
    assert sorted(set(values_of(events, "key"))) == [0, 1, 2, 3, 4]


def test_a_savepoint_is_edited_beside_itself_where_no_folder_is_set(
    own_cluster: ServedCluster, saved: Saved
) -> None:
    del own_cluster.dispatcher.settings["execution.checkpointing.savepoint-dir"]
    found = edit(own_cluster, {"action": "delete-key", "operator": UID, "key": 5})["operation"]
    assert Path(found["location"].removeprefix("file:")).parent == Path(saved[0].uri).parent


def test_the_same_trigger_id_edits_once(own_cluster: ServedCluster, tmp_path: Path) -> None:
    body = {
        "snapshot": SAVEPOINT,
        "reason": "once",
        "triggerId": "ab" * 16,
        "edits": [{"action": "delete-key", "operator": UID, "key": 5}],
    }
    for _ in range(2):
        assert own_cluster.ask("POST", f"{STATE}/edits", body).json == {"request-id": "ab" * 16}
    path = f"{STATE}/edits/{'ab' * 16}"
    own_cluster.get_until(path, lambda found: found["status"]["id"] == "COMPLETED")
    assert len(list((tmp_path / "edited").iterdir())) == 1


def test_edits_that_are_refused_leave_nothing(own_cluster: ServedCluster, tmp_path: Path) -> None:
    found = edit(
        own_cluster, {"action": "set", "operator": UID, "state": "count", "key": 3, "value": "x"}
    )["operation"]
    assert list(found) == ["failure-cause"]
    assert found["failure-cause"]["class"] == "JsonValueError"
    assert "must be int64" in found["failure-cause"]["stack-trace"]
    assert list((tmp_path / "edited").iterdir()) == []


BODIES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "snapshot"),
    ({"edits": []}, 400, "edits"),
    ({"reason": ""}, 400, "reason"),
    ({"edits": [{"action": "drop", "operator": UID, "key": 1}]}, 400, "action"),
    ({"snapshot": 3}, 404, "no recorded snapshot 3"),
    ({"snapshot": 6}, 409, "driver's memory"),
    ({"snapshot": str(Path("/etc"))}, 400, "snapshot"),
    ({"triggerId": "x"}, 400, "32 hexadecimal digits"),
]


@pytest.mark.parametrize(("change", "status", "text"), BODIES)
def test_a_request_to_edit_that_cannot_be_is_refused(
    served: ServedCluster, change: dict[str, Any], status: int, text: str
) -> None:
    whole = {
        "snapshot": SAVEPOINT,
        "reason": "a test",
        "edits": [{"action": "delete-key", "operator": UID, "key": 5}],
    }
    found = served.ask("POST", f"{STATE}/edits", whole | change if change else {})
    assert (found.status, text in found.errors) == (status, True), found.body


def test_a_checkpoint_without_a_folder_for_savepoints_is_not_edited(
    own_cluster: ServedCluster,
) -> None:
    del own_cluster.dispatcher.settings["execution.checkpointing.savepoint-dir"]
    body = {
        "snapshot": 2,
        "reason": "a test",
        "edits": [{"action": "delete-key", "operator": UID, "key": 5}],
    }
    found = own_cluster.ask("POST", f"{STATE}/edits", body)
    assert found.status == 409
    assert "execution.checkpointing.savepoint-dir" in found.errors


def test_pickled_keys_of_a_snapshot_are_shown_as_bytes(
    own_cluster: ServedCluster, tmp_path: Path
) -> None:
    own = settings_in(tmp_path)
    snapshot = savepoint(tmp_path / "pickled", own, key_type=Types.PICKLED_BYTE_ARRAY())
    done = own_cluster.dispatcher.statistics.history[2]
    own_cluster.dispatcher.settings = own.to_dict()
    own_cluster.dispatcher.statistics = structs.replace(
        STATISTICS,
        latest_completed=None,
        history=(structs.replace(done, external_path=snapshot.uri),),
    )
    found = own_cluster.get(f"{OF_SNAPSHOT}/rows?snapshot=7&state=count").json
    key = next(one for one in found["columns"] if one["name"] == "key")
    assert key["is-readable"] is False
    assert all(one["values"][1].startswith("0x80") for one in found["rows"])
    sizes = own_cluster.get(f"{OF_SNAPSHOT}?snapshot=7").json["states"]
    assert {one["name"]: one["keys"] for one in sizes if one["table"] == "keyed"}["count"] == []
    assert all(one["key-groups"] for one in sizes if one["table"] == "keyed")
    refused = own_cluster.get(f"{OF_SNAPSHOT}/rows?snapshot=7&state=count&keys=[3]")
    assert (refused.status, "no keys of a declared type" in refused.errors) == (400, True)
