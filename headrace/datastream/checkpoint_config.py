"""PyFlink's `datastream.checkpoint_config`: re-exports."""

from headrace.api.settings.checkpoint_config import CheckpointConfig
from headrace.api.settings.pyflink_refusals import ExternalizedCheckpointCleanup

__all__ = [
    "ExternalizedCheckpointCleanup",
    "CheckpointConfig",
]
