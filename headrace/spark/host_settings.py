"""Settings that no host could obey, refused before Spark is started for nothing."""

from collections.abc import Mapping
from typing import Final

from headrace.cluster.task_executor.shuffle_services import refuse_unknown_shuffle_service
from headrace.core.config import Settings
from headrace.spark.master import refuse_unknown_master

_MASTER_KEYS: Final = ("headrace.spark.master", "spark.master")


def refuse_unusable_host_settings(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError, or UnknownMasterError, for the first that cannot be."""
    for key in _MASTER_KEYS:
        if settings.get(key):
            refuse_unknown_master(settings[key])
    refuse_unknown_shuffle_service(Settings(settings))
