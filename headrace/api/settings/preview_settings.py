"""Settings of a preview's job, which win over those of the program."""

from collections.abc import Mapping
from typing import Final

from headrace.checkpoint.options import INTERVAL, RECOVERY_PATH
from headrace.core.config import Settings
from headrace.graph.pipeline_options import IS_PREVIEW, RUNTIME_MODE, RuntimeExecutionMode

PREVIEW_SETTINGS: Final = {
    # The program's own job reads on from its checkpoints: sources may delete, or commit as read, what these hold.
    INTERVAL.key: "0 ms",
    RECOVERY_PATH.key: "",
    # In BATCH mode there are no records before the job's end.
    RUNTIME_MODE.key: RuntimeExecutionMode.STREAMING.name,
    IS_PREVIEW.key: "true",
}


def settings_for_cluster(job: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a job that a cluster may start with: none of a preview's own, as later jobs get them."""
    is_preview = Settings(job).get_option(IS_PREVIEW)
    own = PREVIEW_SETTINGS.keys() if is_preview else ()
    return {key: value for key, value in job.items() if key not in own}
