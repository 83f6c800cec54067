"""What clients must know of a job's operators to ask for their state, and the error for one that it does not have.

What is asked and answered stands in `headrace.checkpoint.state_reading`, which tasks know too.
"""

import msgspec

from headrace.core.errors import ErrorDomain, HeadraceError
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
        """What it is asked for by: its uid, or else its name."""
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


class UnknownOperatorError(HeadraceError):
    """A job has no operator of this uid, id or name, or several of this name. `known`: what may be asked for."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, operator: str, known: str, said: str = "no operator") -> None:
        super().__init__(f"the job has {said} '{operator}': there are {known or 'none'}")
        self.operator = operator
        self.known = known
