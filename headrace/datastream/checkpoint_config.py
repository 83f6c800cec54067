"""PyFlink's `datastream.checkpoint_config`: re-exports."""

from headrace.api.checkpoint_config import CheckpointConfig
from headrace.api.gone_names import ExternalizedCheckpointCleanup

__all__ = [
    "ExternalizedCheckpointCleanup",
    "CheckpointConfig",
]
