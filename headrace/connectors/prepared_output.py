"""Decides whether sinks prepare their output for a committer that makes it visible later."""

from headrace.checkpoint.options import INTERVAL
from headrace.core.config import Settings
from headrace.graph.pipeline_options import runs_in_batch


def has_checkpoints(settings: Settings) -> bool:
    """Return whether a job takes checkpoints by itself, so that prepared output is committed with them."""
    return settings.duration_ms(INTERVAL) > 0


def commits_prepared_output(settings: Settings) -> bool:
    """Return whether prepared output is committed: with checkpoints, or at the end of a job in BATCH mode."""
    return has_checkpoints(settings) or runs_in_batch(settings)
