"""OperatorEventValve: holds events of a coordinator back from a subtask between the snapshots of the two. Pure.

An event that a coordinator sends after its part of checkpoint n must reach a subtask after barrier n, or it would be in
both states or in neither. A gate opens again when the subtask has acknowledged n, as the acknowledgement is sent behind
all that the subtask sent before its barrier. It also opens when n is published or aborted. Events that wait for an
attempt that has ended are dropped: the coordinator hears to which checkpoint that subtask is reset.
Source: Flink SubtaskGatewayImpl, OperatorCoordinatorHolder.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.core.ids import ExecutionVertexId, OperatorId


@dataclass(frozen=True)
class HeldEvent:
    """An event on its way to a subtask."""

    subtask: ExecutionVertexId
    operator_id: OperatorId
    payload: bytes


@dataclass
class _Gate:
    closed_for: set[int] = field(default_factory=set[int])
    held: list[HeldEvent] = field(default_factory=list[HeldEvent])


class OperatorEventValve:
    """One gate per subtask that has a coordinator."""

    def __init__(self) -> None:
        self._gates: dict[ExecutionVertexId, _Gate] = {}

    @property
    def holds_events(self) -> bool:
        """Whether anything waits: the next snapshot has to, too, as it would count this as delivered."""
        return any(gate.held for gate in self._gates.values())

    def close(self, checkpoint_id: int, subtasks: Iterable[ExecutionVertexId]) -> None:
        """The coordinators are snapshotted for this checkpoint, right now."""
        assert not self.holds_events
        for subtask in subtasks:
            self._gates.setdefault(subtask, _Gate()).closed_for.add(checkpoint_id)

    def pass_on(self, event: HeldEvent) -> bool:
        """Whether the event may go now; otherwise it is kept."""
        gate = self._gates.get(event.subtask)
        if gate is None:
            return True
        gate.held.append(event)
        return False

    def acknowledged(self, subtask: ExecutionVertexId, checkpoint_id: int) -> list[HeldEvent]:
        """The subtask has passed the barrier; returns what may go now, in order."""
        gate = self._gates.get(subtask)
        if gate is None:
            return []
        # Barriers come in rising order: it has passed the lower ones too.
        gate.closed_for = {each for each in gate.closed_for if each > checkpoint_id}
        return self._open(subtask, gate)

    def ended(self, checkpoint_id: int) -> list[HeldEvent]:
        """The checkpoint was published or aborted."""
        released: list[HeldEvent] = []
        for subtask, gate in list(self._gates.items()):
            gate.closed_for.discard(checkpoint_id)
            released += self._open(subtask, gate)
        return released

    def subtask_gone(self, subtask: ExecutionVertexId) -> None:
        """The attempt has ended: nothing that was meant for it is for its successor."""
        self._gates.pop(subtask, None)

    def _open(self, subtask: ExecutionVertexId, gate: _Gate) -> list[HeldEvent]:
        if gate.closed_for:
            return []
        del self._gates[subtask]
        return gate.held
