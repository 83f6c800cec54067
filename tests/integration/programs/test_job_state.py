"""The state of a running job, as its client sees it: live, as figures, and in the last checkpoint."""

import re
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.api.client.job_state import NoCommittedStateError
from headrace.checkpoint.errors import StateKeyMismatchError, SubtaskNotReadableError
from headrace.checkpoint.state_queries import ReadLimit
from headrace.common import Configuration
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ListStateDescriptor, ValueStateDescriptor
from headrace.gateways.errors import (
    JobAlreadyEndedError,
    StateReadTimeoutError,
    UnknownOperatorError,
)
from headrace.gateways.job_master import JobDetails
from headrace.state_processor.errors import UnknownStateError
from headrace.task.chain.queryable_state import MAIL_ROWS_MAX
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details, every_task_runs

pytestmark = pytest.mark.integration

COUNT, KEY_COUNT, WAIT_S = 200, 40, 60
UID = "counter"


class Hold:
    """Keeps a user function waiting; the test and a task's thread meet here."""

    def __init__(self) -> None:
        self.is_held = threading.Event()
        self.is_over = threading.Event()

    def wait(self) -> None:
        self.is_held.set()
        assert self.is_over.wait(WAIT_S)


HOLDS: dict[str, Hold] = {}


class CountUp(KeyedProcessFunction):
    """Counts the numbers of each key, keeps those of key 3, and sets a timer that never fires."""

    def __init__(self, hold: str = "") -> None:
        self._hold = hold

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.STRING()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key = ctx.get_current_key()
        self._count.update((self._count.value() or 0) + 1)
        if key == 3:
            self._seen.add(f"{value}")
        ctx.timer_service().register_processing_time_timer(10**15 + key)
        if self._hold and value == COUNT:
            HOLDS[self._hold].wait()
            raise ValueError("it was to fail")
        yield value


def has_read(count: int) -> Any:
    def holds(details: JobDetails) -> bool:
        (counter,) = [one for one in details.vertices if "Count up" in one.name]
        return counter.metrics.get("numRecordsIn", 0) >= count

    return holds


@contextmanager
def running(
    env: StreamExecutionEnvironment,
    name: str,
    settings: dict[str, str] | None = None,
    source: Any = None,
    key_count: int = KEY_COUNT,
    hold: str = "",
) -> Generator[tuple[JobClient, Gate]]:
    """A job whose two subtasks count numbers by key; by default the first COUNT, and then it waits."""
    gate = GATES[name] = Gate(COUNT)
    configuration = Configuration()
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(2)
    numbers = env.from_source(
        source or GatedSource(name, None),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        Types.LONG(),
    )
    keyed = numbers.key_by(lambda value: value % key_count, key_type=Types.LONG())
    counted = keyed.process(CountUp(hold), output_type=Types.LONG())
    counted.uid(UID).name("Count up").filter(lambda value: value < 0).print()
    client = env.execute_async(name)
    try:
        await_details(client, every_task_runs)
        if source is None:
            await_details(client, has_read(COUNT))
        yield client, gate
    finally:
        client.cancel().result(WAIT_S)
        client.get_job_execution_result().exception()


def counts_in(rows: Any) -> dict[int, int]:
    return {row["key"]: row["value"] for row in rows.to_pylist()}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_live_state_is_what_the_records_so_far_have_made_of_it(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest, backend: str
) -> None:
    settings = {"state.backend.type": backend, "execution.checkpointing.incremental": "true"}
    with running(env, request.node.name, settings) as (client, gate):
        state = client.state()
        assert "Count up" in {one.name for one in state.operators()}
        assert {(one.name, one.kind) for one in state.states(UID)} == {
            ("count", "value"),
            ("seen", "list"),
            ("timers", ""),
        }
        counted = state.live(UID, "count")
        assert counts_in(counted.rows) == dict.fromkeys(range(KEY_COUNT), COUNT // KEY_COUNT)
        assert not counted.is_partial
        assert counted.rows.column_names == ["subtask", "key_group", "key", "value"]
        assert set(counted.rows.column("subtask").to_pylist()) == {0, 1}
        assert [one.row_count for one in counted.subtasks] == [
            counted.rows.column("subtask").to_pylist().count(index) for index in (0, 1)
        ]
        of_two = state.live(UID, "count", keys=[7, 3, 999])
        assert counts_in(of_two.rows) == {3: 5, 7: 5}
        assert state.live(UID, "count", keys=[999]).rows == counted.rows.schema.empty_table()
        seen = state.live("Count up", "seen")
        assert seen.rows.select(["list_pos", "value"]).to_pylist() == [
            {"list_pos": index, "value": f"{3 + index * KEY_COUNT}"} for index in range(5)
        ]
        timers = state.live(UID, table="timers")
        assert sorted(timers.rows.column("ts").to_pylist()) == [
            10**15 + n for n in range(KEY_COUNT)
        ]
        limited = state.live(UID, "count", row_limit=3)
        assert [one.limit for one in limited.subtasks] == [ReadLimit.ROWS] * 2
        assert "not all: there are more rows than requested" in str(limited)

        gate.open_to(COUNT + KEY_COUNT)
        await_details(client, has_read(COUNT + KEY_COUNT))
        assert set(counts_in(state.live(UID, "count").rows).values()) == {6}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_figures_say_how_much_there_is_and_where(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest, backend: str
) -> None:
    with running(env, request.node.name, {"state.backend.type": backend}) as (client, _):
        figures = client.state().figures(UID)
        rows = {row["state"]: row for row in figures.table().to_pylist()}
        assert {name: row["rows"] for name, row in rows.items()} == {
            "count": KEY_COUNT,
            "seen": 5,
            "timers": KEY_COUNT,
        }
        assert rows["seen"]["top_keys"][0]["key"] == "3"
        assert rows["seen"]["top_keys"][0]["rows"] == 5
        assert (rows["seen"]["key_groups"], rows["seen"]["subtask_skew"]) == (1, 2.0)
        (timers,) = rows["timers"]["timers"]
        assert (timers["domain"], timers["next_ms"]) == ("processing", 10**15)
        assert timers["later"] == KEY_COUNT
        groups = figures.key_groups().to_pylist()
        assert sum(row["rows"] for row in groups if row["state"] == "count") == KEY_COUNT
        assert figures.state("count").size_bytes == KEY_COUNT * (4 + 8 + 8)
        assert re.search(r"count \(keyed\): 40 rows, 800 B, key groups x[\d.]+", str(figures))
        with pytest.raises(KeyError, match="count, seen, timers"):
            figures.state("other")


def test_a_large_state_is_read_in_small_mails_while_the_job_goes_on(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest
) -> None:
    key_count = 30_000
    source = NumberSequenceSource(0, 10**12)
    with running(env, request.node.name, None, source, key_count) as (client, _):
        state = client.state()
        await_details(client, has_read(2 * key_count))
        whole = state.live(UID, "count", row_limit=key_count, time_limit=timedelta(seconds=WAIT_S))
        assert whole.rows.num_rows == key_count
        assert not whole.is_partial
        for one in whole.subtasks:
            # A record waits for one mail at most, which looks at so many entries at most.
            assert 0 < one.mail_row_count_max <= MAIL_ROWS_MAX
            assert one.mail_count > one.row_count / MAIL_ROWS_MAX + 1
        later = counts_in(state.live(UID, "count", keys=list(range(100))).rows)
        before = {key: count for key, count in counts_in(whole.rows).items() if key < 100}
        assert all(later[key] >= before[key] for key in range(100))
        await_details(client, has_read(sum(counts_in(whole.rows).values()) + 1))


def test_the_last_checkpoint_is_read_without_its_path_and_kept_meanwhile(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "headrace.checkpoint.key-file": str(tmp_path / "key"),
    }
    with running(env, request.node.name, settings) as (client, gate):
        state = client.state()
        with pytest.raises(NoCommittedStateError, match="no checkpoint yet"), state.committed():
            pass
        first = client.trigger_checkpoint().result(WAIT_S)
        gate.open_to(COUNT + KEY_COUNT)
        await_details(client, has_read(COUNT + KEY_COUNT))
        with state.committed() as committed:
            assert committed.checkpoint_id == first
            assert timedelta() <= committed.age < timedelta(seconds=WAIT_S)
            assert set(counts_in(committed.read(UID, "count")).values()) == {5}
            client.trigger_checkpoint().result(WAIT_S)
            # The job has a newer one, and would have deleted this.
            assert counts_in(committed.read(UID, "count", keys=[3])) == {3: 5}
            assert "counter" in committed.read(table="operators").column("uid").to_pylist()
            assert f"checkpoint {first}," in repr(committed)
            assert Path(committed.uri.removeprefix("file://")).is_dir()
        with state.committed() as committed:
            assert committed.checkpoint_id > first
            assert counts_in(committed.read(UID, "count")) == counts_in(
                state.live(UID, "count").rows
            )


def test_a_job_that_started_from_a_savepoint_shows_it_until_its_own_first_checkpoint(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = request.node.name
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "headrace.checkpoint.key-file": str(tmp_path / "key"),
    }
    with running(env, name, settings) as (client, _):
        savepoint = client.trigger_savepoint(str(tmp_path / "savepoints")).result(WAIT_S)
    resumed = settings | {
        "execution.state-recovery.path": savepoint,
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    with running(env, name, resumed, GatedSource(name, None)) as (client, _):
        state = client.state()
        with state.committed() as committed:
            assert (committed.uri, committed.is_own) == (savepoint, False)
            assert set(counts_in(committed.read(UID, "count")).values()) == {5}
        client.trigger_checkpoint().result(WAIT_S)
        with state.committed() as committed:
            assert committed.uri != savepoint
            assert committed.is_own


def test_the_example_of_the_documents_runs_as_it_stands(
    env: StreamExecutionEnvironment,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = (Path(__file__).parents[3] / "docs" / "state.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```py\n(state = client\.state\(\)\n.*?)^```$", document, re.M | re.S)
    settings = {
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "headrace.checkpoint.key-file": str(tmp_path / "key"),
    }
    with running(env, request.node.name, settings) as (client, _):
        client.trigger_checkpoint().result(WAIT_S)
        exec(compile(example, "docs/state.md", "exec"), {"client": client})
    figures, now, committed = re.split(r"^(?=\[|\d)", capsys.readouterr().out, flags=re.M)
    assert "count (keyed): 40 rows" in figures
    assert "'key': 7, 'value': 5}" in now
    assert now.endswith("] False\n")
    assert committed.endswith(f" {KEY_COUNT}\n")


def test_a_checkpoint_in_the_memory_of_the_driver_has_no_tables(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest
) -> None:
    with running(env, request.node.name, {"execution.checkpointing.interval": "1 h"}) as (
        client,
        _,
    ):
        client.trigger_checkpoint().result(WAIT_S)
        with pytest.raises(NoCommittedStateError, match="memory"), client.state().committed():
            pass


def test_what_is_not_there_is_said_with_what_is(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest
) -> None:
    with running(env, request.node.name) as (client, _):
        state = client.state()
        with pytest.raises(UnknownOperatorError, match=r"'other'.*counter"):
            state.live("other", "count")
        with pytest.raises(UnknownStateError, match=r"no state 'cuont'.*choose from count, seen"):
            state.live(UID, "cuont")
        with pytest.raises(UnknownStateError, match=r"several states.*count, seen"):
            state.live(UID)
        with pytest.raises(UnknownStateError, match=r"none in its table windows now \(but 'count'"):
            state.live(UID, table="windows")
        with pytest.raises(UnknownStateError, match=r"no table 'splits'.*keyed"):
            state.live(UID, table="splits")
        with pytest.raises(StateKeyMismatchError, match="'count'"):
            state.live(UID, "count", keys=["three"])
    with pytest.raises(JobAlreadyEndedError):
        client.state().live(UID, "count")


def test_user_code_that_does_not_return_and_a_task_that_ends_are_told_by_name(
    env: StreamExecutionEnvironment, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    hold = HOLDS[name] = Hold()
    settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 h"}
    with running(env, name, settings, hold=name) as (client, gate):
        gate.open_to(COUNT + 1)
        assert hold.is_held.wait(WAIT_S)
        state = client.state()
        with pytest.raises(StateReadTimeoutError, match=r"Count up.*has not answered within"):
            state.live(UID, "count", time_limit=timedelta(milliseconds=1))
        errors: list[BaseException] = []

        def read() -> None:
            try:
                state.live(UID, "count", time_limit=timedelta(seconds=WAIT_S))
            except SubtaskNotReadableError as error:
                errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        hold.is_over.set()
        reader.join(WAIT_S)
        (error,) = errors
        assert "Count up" in str(error)
        with pytest.raises(SubtaskNotReadableError, match=r"because it is [A-Z]+: try again"):
            state.live(UID, "count")
