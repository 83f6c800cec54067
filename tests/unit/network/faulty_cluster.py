"""A simulated exchange whose links fail."""

from headrace.network.trace.simulated_transport import LinkDelay, SimulatedNetwork
from headrace.testing.fault_proxy.rules import parse_rule
from testkit.simulation.simulated_fault_proxy import SimulatedFaults
from tests.unit.network.simulated import SimulatedCluster


class FaultyCluster(SimulatedCluster):
    """TaskManagers whose connections meet rules."""

    def __init__(
        self, *rules: str, seed: int = 0, delay_ms: LinkDelay = lambda source, target: 1.0
    ) -> None:
        super().__init__(delay_ms)
        parsed = [parse_rule(rule) for rule in rules]
        self.faults = SimulatedFaults(parsed, seed, self.loop.schedule, self.loop.clock)
        self.network = SimulatedNetwork(self.loop.schedule, delay_ms, self.faults.create_relay)

    @property
    def fault_count(self) -> int:
        return sum(injector.fault_counts.total() for injector in self.faults.injectors)
