"""PyFlink's `common.config_options`: re-exports."""

from headrace.core.configuration import ConfigOptions
from headrace.core.configuration import UserConfigOption as ConfigOption

__all__ = ["ConfigOption", "ConfigOptions"]
