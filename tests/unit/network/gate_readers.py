"""Reads a gate to its end."""

from headrace.network.gates.gate import GateElement, InputGate
from tests.unit.network.simulated import SimulatedCluster


def read_all(cluster: SimulatedCluster, source: InputGate) -> list[GateElement]:
    elements: list[GateElement] = []
    while not source.is_finished:
        element = source.poll()
        if element is None:
            cluster.loop.run_until(lambda: source.is_available)
        else:
            elements.append(element)
    return elements
