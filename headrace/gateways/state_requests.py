"""Messages by which clients ask for the state of a running job, from the Dispatcher down to a TaskManager."""

import msgspec

from headrace.checkpoint.state_queries import StateQuery, StateReadResult
from headrace.core.ids import OperatorId


class OperatorDescription(msgspec.Struct, frozen=True):
    """One operator of a running job. `uid` is empty where the program gave none."""

    operator_id: OperatorId
    uid: str
    name: str
    vertex_name: str
    parallelism: int
    max_parallelism: int

    @property
    def title(self) -> str:
        """Return the name by which users ask for the operator: its uid, or else its name."""
        return self.uid or self.name


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """The newest complete checkpoint of a running job, or the snapshot that it started from while it has none.

    `uri`: its folder; empty where it lies in the driver's memory. `key_file`: of the key that its metadata are written
    with (empty: that of the user's home).
    """

    checkpoint_id: int
    uri: str
    timestamp_ms: int
    key_file: str


class StateReadRequest(msgspec.Struct, frozen=True):
    """Client → JobMaster: ask one subtask. `operator`: its uid, else its id, else its name."""

    operator: str
    subtask_index: int
    query: StateQuery


class SubtaskState(msgspec.Struct, frozen=True):
    """An answer, and which attempt on which TaskManager gave it."""

    attempt_number: int
    resource_id: str
    result: StateReadResult
