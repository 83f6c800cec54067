"""owner_of_sink: by which name the subtasks of one sink find what they have staged, and nobody else does.

Staged data outlives its writer: the driver finds it by this name, and so does a later attempt that deletes leftovers.
"""

import hashlib
from typing import Final

from headrace.core.randomness import system_random
from headrace.functions.runtime_context import SubtaskContext

OWNER_BYTES: Final = 8
_JOB_BYTES: Final = 16


def owner_of_sink(context: SubtaskContext) -> str:
    """Return the name of a sink within one job, 16 hexadecimal digits."""
    attempt = context.attempt_id
    # Without a job (a writer that is driven by hand) nobody can be told apart: then the owner is unique too.
    job = system_random().randbytes(_JOB_BYTES) if attempt is None else attempt.job_id.value
    return hashlib.blake2b(job + context.operator_id.value, digest_size=OWNER_BYTES).hexdigest()
