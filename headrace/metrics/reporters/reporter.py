"""MetricReporter: sends reports of one process somewhere. Base of all reporters, also of those in other packages.

A package offers one as an entry point of `headrace.metric_reporters`: a subclass, made with a ReporterConfig. Its
methods are called on one thread that is its own, may take as long as they like and raise what they like.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from headrace.core.config import ConfigOption
from headrace.core.errors import ConfigurationError, ErrorDomain, HeadraceError
from headrace.metrics.groups import MetricSample
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters.options import REPORTER_PREFIX

T = TypeVar("T")

_PLACEHOLDER: Final = "<name>"


class ReportingError(HeadraceError):
    """The system that a reporter sends to did not take a report."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


@dataclass(frozen=True)
class ReporterConfig:
    """Settings of the reporter `name`. `values`: without the prefix.

    `process_name`: a TaskManager's id, or `jobmanager`. `delimiter`: between the parts of whole names.
    """

    name: str
    values: Mapping[str, str]
    process_name: str
    delimiter: str = "."

    def get_option(self, option: ConfigOption[T]) -> T:
        """Return the option's value for this reporter, or its default; ConfigurationError names the whole key."""
        raw = self.values.get(suffix_of(option))
        if raw is None:
            return option.default
        try:
            return option.parse(raw)
        except ConfigurationError as error:
            raise ConfigurationError(self.key_of(option), raw, error.reason) from None

    def pairs_of(
        self,
        option: ConfigOption[str],
        between: str,
        sign: str,
        name_of: Callable[[str], str] = str.strip,
    ) -> dict[str, str]:
        """Return names and values of an option in which `between` divides pairs, and `sign` a name from its value.

        ConfigurationError where it has another form, or a name is empty.
        """
        text = self.get_option(option)
        pairs: dict[str, str] = {}
        for part in filter(str.strip, text.split(between)):
            name, found, value = part.partition(sign)
            if not (found and name_of(name)):
                form = f"write name{sign}value{between}name{sign}value"
                raise ConfigurationError(self.key_of(option), text, form)
            pairs[name_of(name)] = value.strip()
        return pairs

    def key_of(self, option: ConfigOption[Any]) -> str:
        """Return the option's key for this reporter."""
        return option.key.replace(_PLACEHOLDER, self.name)


def suffix_of(option: ConfigOption[Any]) -> str:
    """Return a reporter option's key without the prefix and the name."""
    return option.key.removeprefix(f"{REPORTER_PREFIX}{_PLACEHOLDER}.")


class MetricReporter(ABC):
    """One reporter of one process. `OPTIONS`: those of its own, beside the common ones."""

    OPTIONS: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    is_pulled: ClassVar[bool] = False
    """True if it reads the groups when it is asked itself: reports then come as groups end, and hold only those."""

    def __init__(self, config: ReporterConfig) -> None:
        """ConfigurationError where a setting cannot be."""
        self.config: Final = config

    def open(self, read: Callable[[], MetricReport]) -> None:  # noqa: B027
        """Begin; called again before the next report if it fails. `read` reads all groups, from any thread."""

    @abstractmethod
    def report(self, report: MetricReport) -> None:
        """Send a report."""

    def report_spans(self, spans: Sequence[Span]) -> None:  # noqa: B027
        """Send spans of traces, in the order in which they ended."""

    def close(self) -> None:  # noqa: B027
        """End; called once, if `open` succeeded."""

    def whole_name(self, reading: GroupReading, sample: MetricSample) -> str:
        """Return scope, sub-groups and name in one."""
        return self.config.delimiter.join((*reading.scope, *sample.path, sample.name))
