"""OperatorEventValve: an event and its subtask's barrier keep the order of the coordinator's snapshot."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.coordinators.event_delivery import HeldEvent, OperatorEventValve
from headrace.core.ids import ExecutionVertexId, OperatorId
from tests.unit.cluster.cluster_samples import vertex_id

SUBTASKS = [ExecutionVertexId(vertex_id(1), index) for index in range(2)]
OPERATOR = OperatorId(b"o" * 16)


def event(subtask: int, number: int) -> HeldEvent:
    return HeldEvent(SUBTASKS[subtask], OPERATOR, str(number).encode())


def test_a_gate_that_is_closed_for_two_checkpoints_opens_after_the_second() -> None:
    gates = OperatorEventValve()
    gates.close(1, SUBTASKS)
    gates.close(2, SUBTASKS)
    assert not gates.pass_on(event(0, 1))
    assert gates.acknowledged(SUBTASKS[0], 1) == []
    assert gates.acknowledged(SUBTASKS[0], 2) == [event(0, 1)]
    assert gates.pass_on(event(0, 2))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("event"), st.integers(0, 1)),
            st.tuples(st.just("snapshot")),
            st.tuples(st.just("ack"), st.integers(0, 1)),
            st.tuples(st.just("end"), st.integers(0, 3)),
        ),
        max_size=60,
    )
)
def test_every_event_arrives_once_in_order_and_behind_the_barriers_before_it(
    steps: list[tuple[object, ...]],
) -> None:
    gates = OperatorEventValve()
    arrived: dict[int, list[int]] = {0: [], 1: []}
    sent: dict[int, list[int]] = {0: [], 1: []}
    needs: dict[int, int] = {}
    acknowledged = {0: 0, 1: 0}
    ended: set[int] = set()
    last_id = number = 0

    def deliver(events: list[HeldEvent]) -> None:
        for each in events:
            index, value = each.subtask.subtask_index, int(each.payload)
            arrived[index].append(value)
            open_ids = [i for i in range(1, needs[value] + 1) if i not in ended]
            assert all(i <= acknowledged[index] for i in open_ids)

    for step in steps:
        match step:
            case ("event", int(index)):
                number += 1
                needs[number] = last_id
                sent[index].append(number)
                if gates.pass_on(event(index, number)):
                    deliver([event(index, number)])
            case ("snapshot",):
                if not gates.holds_events:
                    last_id += 1
                    gates.close(last_id, SUBTASKS)
            case ("ack", int(index)) if acknowledged[index] < last_id:
                acknowledged[index] += 1
                deliver(gates.acknowledged(SUBTASKS[index], acknowledged[index]))
            case ("end", int(back)) if last_id - back > 0:
                ended.add(last_id - back)
                deliver(gates.ended(last_id - back))
            case _:
                pass
    ended |= set(range(1, last_id + 1))
    for checkpoint_id in range(1, last_id + 1):
        deliver(gates.ended(checkpoint_id))
    assert arrived == sent
