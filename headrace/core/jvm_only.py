"""Names of PyFlink's that mean something with a JVM alone: importable, and refused where a program uses them."""

from collections.abc import Callable
from typing import Any, NoReturn

from headrace.core.errors import ProgramError


class JvmOnlyType(type):
    """The type of such classes: instances are not made, and what would be a static method refuses its call."""

    instead: str

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        """Raise ProgramError: there is nothing that the object could wrap."""
        raise no_jvm(cls.__name__, cls.instead)

    def __getattr__(cls, name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")

        def refuse(*args: Any, **options: Any) -> NoReturn:
            raise no_jvm(f"{cls.__name__}.{name}", cls.instead)

        return refuse


def jvm_only(name: str, instead: str) -> JvmOnlyType:
    """Make the class of that name; `instead` says what to use here."""
    return JvmOnlyType(
        name, (), {"__doc__": f"PyFlink's; refused here: {instead}.", "instead": instead}
    )


def no_jvm(what: str, instead: str) -> ProgramError:
    """Return the error for a use of `what`."""
    return ProgramError(
        f"{what} stands for Java code of Flink's, and there is no JVM here that runs it: {instead}"
    )
