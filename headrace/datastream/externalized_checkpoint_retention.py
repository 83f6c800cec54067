"""PyFlink's `datastream.externalized_checkpoint_retention`: re-exports."""

from headrace.api.settings.checkpoint_config import ExternalizedCheckpointRetention

__all__ = [
    "ExternalizedCheckpointRetention",
]
