"""The form in which map states keep and look up their keys, and the error for what has none."""

from typing import Any

from headrace.core.errors import RecordTypeError
from headrace.core.types.value_checks import ValueCheck
from headrace.functions.state import MapStateDescriptor, StateDescriptor
from headrace.state.backend import StateAccessError


def misfit(descriptor: StateDescriptor, error: RecordTypeError) -> StateAccessError:
    """Return the error for a value that is not of the declared type."""
    return StateAccessError(
        f"state '{descriptor.get_name()}' cannot hold {error.shown}: it is declared as {error.type_text}, "
        f"{error.reason}",
        descriptor.get_name(),
        error,
    )


class KeyForms:
    """The form in which a map state keeps its keys, and looks them up."""

    def __init__(self, descriptor: MapStateDescriptor) -> None:
        self._descriptor = descriptor
        check = ValueCheck.of(descriptor.key_type, is_key=True)
        self.converts = not check.keeps_all
        """Whether there is anything to ask: not of undeclared types."""
        self.plain = check.fitting | ({int} if check.lowest <= check.highest else set[type]())
        """Classes of keys that are looked up as they are."""
        self.fitting, self._keep = check.fitting, check.keep
        self._lowest, self._highest = check.lowest, check.highest

    def kept(self, key: Any) -> Any:
        """Return the form to be kept; StateAccessError where `key` is not of the declared type."""
        if (type(key) is int and self._lowest <= key <= self._highest) or type(key) in self.fitting:
            return key
        try:
            return self._keep(key)
        except RecordTypeError as error:
            raise misfit(self._descriptor, error) from None

    def looked_up(self, key: Any) -> Any:
        """Return the form that is kept of `key`, or `key` itself where none is: then nothing is found."""
        if type(key) in self.plain:
            return key
        try:
            return self._keep(key)
        except RecordTypeError:
            return key
