"""Names that PyFlink had in its 1.x releases: importable, and refused where a program uses them."""

from collections.abc import Callable
from typing import Any, NoReturn

from headrace.core.errors import ProgramError
from headrace.core.jvm_only import JvmOnlyType


class GoneType(JvmOnlyType):
    """The type of classes that are gone: instances are not made, and what would be a member refuses its use."""

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        """Raise ProgramError: Flink 2 has no such class."""
        raise name_is_gone(cls.__name__, cls.instead)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        raise name_is_gone(f"{cls.__name__}.{name}", cls.instead)


def gone_class(name: str, instead: str) -> GoneType:
    """Make the class of that name; `instead` says what to use now."""
    return GoneType(name, (), {"__doc__": f"PyFlink 1.x's; gone: {instead}.", "instead": instead})


def gone_method(name: str, instead: str) -> Callable[..., NoReturn]:
    """Make the method of that name, which refuses every call."""

    def refuse(self: object, *args: Any, **options: Any) -> NoReturn:
        raise name_is_gone(name, instead)

    refuse.__name__ = name
    refuse.__doc__ = f"PyFlink 1.x's; gone: {instead}."
    return refuse


def name_is_gone(what: str, instead: str) -> ProgramError:
    """Return the error for a use of `what`."""
    return ProgramError(
        f"{what} is of Flink 1.x and gone since Flink 2, which is followed here: {instead}"
    )
