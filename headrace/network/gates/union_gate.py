"""UnionInputGate: several edges that lead to the same input, read as one gate.

Channels are numbered consecutively, gate by gate. The union does not own its gates: they are
requested and closed by their creator. Source: Flink UnionInputGate.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

import msgspec

from headrace.network.gates.gate import GateElement, InputGate
from headrace.network.gates.single_input_gate import ReadyChannels


class UnionInputGate:
    """Reads several gates as one. Gates with elements are read in turn, one element each."""

    def __init__(self, gates: Sequence[InputGate]) -> None:
        assert gates
        self._gates: Final = tuple(gates)
        counts = [gate.number_of_channels for gate in gates]
        self._offsets: Final = [0, *accumulate(counts)]
        # Each gate stands in line, has been asked to say when it is available, or is finished and known to be.
        self._turns: Final = ReadyChannels(len(self._gates))
        for index in range(len(self._gates)):
            self._gate_available(index)

    @property
    def number_of_channels(self) -> int:
        return self._offsets[-1]

    @property
    def is_finished(self) -> bool:
        return all(gate.is_finished for gate in self._gates)

    @property
    def is_available(self) -> bool:
        return self._turns.is_available

    @property
    def has_priority_event(self) -> bool:
        return any(gate.has_priority_event for gate in self._gates)

    def poll(self) -> GateElement | None:
        index = next((k for k, gate in enumerate(self._gates) if gate.has_priority_event), None)
        if index is not None:
            element = self._gates[index].poll()
            if element is not None:
                return self._renumbered(index, element)
        while (index := self._turns.next()) is not None:
            gate = self._gates[index]
            element = gate.poll()
            if element is not None:
                self._gate_available(index)
                return self._renumbered(index, element)
            if not gate.is_finished:
                gate.on_available(partial(self._gate_available, index))
            elif self.is_finished:
                self._turns.end()
        return None

    def on_available(self, callback: Callable[[], None]) -> None:
        self._turns.on_available(callback)

    def on_priority_event(self, callback: Callable[[], None]) -> None:
        """Call `callback` once for each gate, as soon as it has an event with priority."""
        for gate in self._gates:
            gate.on_priority_event(callback)

    def resume(self, channel_index: int) -> None:
        index = self._gate_of(channel_index)
        self._gates[index].resume(channel_index - self._offsets[index])

    def prioritise(self, channel_index: int, sequence: int) -> None:
        index = self._gate_of(channel_index)
        self._gates[index].prioritise(channel_index - self._offsets[index], sequence)

    def acknowledge_all_data(self, channel_index: int) -> None:
        index = self._gate_of(channel_index)
        self._gates[index].acknowledge_all_data(channel_index - self._offsets[index])

    def _gate_available(self, index: int) -> None:
        # Priority is asked of the gates themselves, whichever of them stands in line.
        self._turns.add(index, has_priority=False)

    def _gate_of(self, channel_index: int) -> int:
        assert 0 <= channel_index < self.number_of_channels
        return next(k for k, end in enumerate(self._offsets[1:]) if channel_index < end)

    def _renumbered(self, index: int, element: GateElement) -> GateElement:
        offset = self._offsets[index]
        if not offset:
            return element
        return msgspec.structs.replace(element, channel_index=element.channel_index + offset)
