"""Scripted endpoints and tasks, which replace the other side of a gateway in a test.

A scripted endpoint implements every method of a gateway, records the calls and answers from its script. A scripted
task has no data plane: the test decides which state it reaches.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from headrace.checkpoint.handles import (
    CheckpointMetrics,
    CheckpointProgress,
    TaskStateSnapshot,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.ids import ExecutionAttemptId, FencingToken, OperatorId
from headrace.core.lifecycle import ExecutionState
from headrace.core.threads import ThreadIds
from headrace.gateways.messages import Acknowledge
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import VertexPayloads
from headrace.metrics.groups import samples_of
from headrace.rpc.contract import gateway_contract
from headrace.rpc.endpoint import FencedRpcEndpoint, RpcEndpoint
from headrace.rpc.loopback import LoopbackNetwork
from headrace.rpc.service import RpcService
from headrace.task.chain.queryable_state import StateRead
from headrace.task.environment import TaskListener
from headrace.task.metrics import TaskSamples
from testkit.simulation.virtual_loop import VirtualLoop


@dataclass(frozen=True)
class RecordedCall:
    """One call that arrived."""

    method: str
    arguments: tuple[Any, ...]


@dataclass
class Script:
    """Calls so far, and answers: a value, an exception to raise, or a function of the arguments.

    Calls without an answer are acknowledged.
    """

    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])

    def called(self, method: str) -> list[tuple[Any, ...]]:
        """Return the arguments of all calls of one method."""
        return [call.arguments for call in self.calls if call.method == method]

    async def answer(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Record a call and return its answer."""
        self.calls.append(RecordedCall(method, arguments))
        answer = self.answers.get(method, Acknowledge())
        if callable(answer):
            answer = answer(*arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


class ScriptedEndpoint:
    """An endpoint that implements `gateway_type` by its `script`; `start_scripted` creates it."""

    script: Script
    address: str


def start_scripted(
    rpc_service: RpcService,
    name: str,
    gateway_type: type,
    fencing_token: FencingToken | None = None,
    **answers: Any,
) -> ScriptedEndpoint:
    """Start an endpoint that answers calls of `gateway_type` from a script."""
    script = Script(answers)
    members: dict[str, Any] = {"gateway_types": (gateway_type,), "script": script}
    for method in gateway_contract(gateway_type).methods.values():
        members[method.name] = _asked(method.name) if method.is_ask else _told(method.name)
    base = RpcEndpoint if fencing_token is None else FencedRpcEndpoint
    endpoint_type = cast(Any, type(f"Scripted{gateway_type.__name__}", (base,), members))
    arguments = (rpc_service, name) if fencing_token is None else (rpc_service, name, fencing_token)
    endpoint = endpoint_type(*arguments)
    endpoint.start()
    return endpoint


def _asked(name: str) -> Callable[..., Any]:
    async def handler(self: ScriptedEndpoint, *arguments: Any) -> Any:
        return await self.script.answer(name, arguments)

    return handler


def _told(name: str) -> Callable[..., None]:
    def handler(self: ScriptedEndpoint, *arguments: Any) -> None:
        self.script.calls.append(RecordedCall(name, arguments))

    return handler


class ScriptedTask:
    """A task that reaches the states that the test sets. Implements RunningTask.

    It ends by itself when it is cancelled or failed, unless `is_stuck`.
    """

    def __init__(self, attempt_id: ExecutionAttemptId, listener: TaskListener) -> None:
        self.attempt_id = attempt_id
        self.state = ExecutionState.CREATED
        self.is_stuck = False
        self.events: list[tuple[OperatorId, bytes]] = []
        self.metrics: dict[str, float] = {}
        self.payloads: VertexPayloads | None = None
        self.state_reads: list[StateRead] = []
        self.thread_ids: ThreadIds | None = None
        self.checkpoint_calls: list[tuple[str, int]] = []
        self.checkpoint_options: dict[int, CheckpointOptions] = {}
        self._listener = listener

    def start(self) -> None:
        self.reach(ExecutionState.RUNNING)

    def reach(self, state: ExecutionState, error: BaseException | None = None) -> None:
        """Report a state."""
        self.state = state
        self._listener.state_changed(self.attempt_id, state, error)

    def send_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Send an event to the operator's coordinator."""
        self._listener.operator_event(self.attempt_id, operator_id, payload)

    def cancel(self) -> None:
        if not self.state.is_terminal:
            self.reach(ExecutionState.CANCELING)
            if not self.is_stuck:
                self.reach(ExecutionState.CANCELED)

    def fail_externally(self, error: BaseException) -> None:
        if not self.state.is_terminal and not self.is_stuck:
            self.reach(ExecutionState.FAILED, error)

    def deliver_payloads(self, payloads: VertexPayloads) -> None:
        self.payloads = payloads

    def deliver_operator_event(self, operator_id: OperatorId, payload: bytes) -> None:
        self.events.append((operator_id, payload))

    def trigger_checkpoint(
        self, checkpoint_id: int, timestamp_ms: int, options: CheckpointOptions
    ) -> None:
        self.checkpoint_calls.append(("trigger", checkpoint_id))
        self.checkpoint_options[checkpoint_id] = options

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.checkpoint_calls.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        self.checkpoint_calls.append(("aborted", checkpoint_id))

    def acknowledge_checkpoint(
        self, checkpoint_id: int, snapshot: TaskStateSnapshot | None = None
    ) -> None:
        """Report that the task's part of a checkpoint is stored."""
        self._listener.checkpoint_acknowledged(
            self.attempt_id, checkpoint_id, snapshot or TaskStateSnapshot(), CheckpointMetrics()
        )

    def checkpoint_progress(self, checkpoint_id: int) -> CheckpointProgress | None:
        """Return no progress."""
        return None

    def read_state(self, read: StateRead) -> None:
        """Return the test's answer."""
        self.state_reads.append(read)

    def user_counters(self) -> tuple[str, ...]:
        return ()

    def metrics_snapshot(self) -> dict[str, float]:
        return dict(self.metrics)

    def metric_samples(self) -> TaskSamples:
        return TaskSamples(samples_of(self.metrics), {})


@dataclass
class ScriptedTaskFactory:
    """Creates scripted tasks and keeps them. Implements TaskFactory. If `error` is set, it is raised instead."""

    tasks: dict[ExecutionAttemptId, ScriptedTask] = field(
        default_factory=dict[ExecutionAttemptId, ScriptedTask]
    )
    error: BaseException | None = None

    def create(
        self,
        descriptor: TaskDeploymentDescriptor,
        listener: TaskListener,
        external_resources: Mapping[str, tuple[str, ...]] | None = None,
    ) -> ScriptedTask:
        if self.error is not None:
            raise self.error
        task = ScriptedTask(descriptor.attempt_id, listener)
        self.tasks[descriptor.attempt_id] = task
        return task


def end_processes(network: LoopbackNetwork, loop: VirtualLoop) -> None:
    """End every process of a network and then its loop, so that no task is left pending."""
    for service in list(network.services.values()):
        service.abort()
    loop.run_for(1)
    loop.close()
