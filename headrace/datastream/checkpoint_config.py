"""PyFlink's `datastream.checkpoint_config`: re-exports."""

from headrace.api.checkpoint_config import CheckpointConfig

__all__ = [
    "CheckpointConfig",
]
