"""PyFlink's `datastream.checkpointing_mode`: re-exports."""

from headrace.api.settings.checkpoint_config import CheckpointingMode

__all__ = [
    "CheckpointingMode",
]
