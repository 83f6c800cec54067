"""Bases of the REST models: Flink spells JSON names in kebab, camel or snake case, each shape in one of them."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from headrace.core.ids import ID_PATTERN

NOT_A_NUMBER: Final = "NaN"
WHOLE_ID: Final = f"^{ID_PATTERN}$"
"""Pattern of a text that is an id: in paths, queries and bodies."""


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _is_none(value: Any) -> bool:
    return value is None


KEBAB: Final = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="ignore")
"""Spelling of dataclasses in the place of KebabModels where answers have thousands: made in a third of the time."""


class KebabModel(BaseModel):
    """A shape whose JSON names are like `start-time`."""

    model_config = KEBAB


class CamelModel(BaseModel):
    """A shape whose JSON names are like `startTime`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class SnakeModel(BaseModel):
    """A shape whose JSON names are like `start_time`."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")


def _boolean(value: Any) -> bool:
    """Take what Flink's mapper takes: booleans, whole numbers, and the words true and false."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, int):
        return bool(value)
    raise ValueError(f"only true or false is recognized, not {value!r}")


RequestedBoolean = Annotated[bool, BeforeValidator(_boolean)]
"""A boolean of a request's body. Pydantic's own reading takes `t`, `yes` and `on` for true, too."""


def left_out() -> Any:
    """Return the default of a field that is not there when it is None."""
    return Field(default=None, exclude_if=_is_none)


Milliseconds = Annotated[
    int, Field(description="epoch milliseconds; -1: not yet, 0: never entered")
]
"""A moment."""

TriggerId = Annotated[str, WithJsonSchema({"type": "string", "pattern": WHOLE_ID})]
"""The caller's own id of an operation; its handler says what is wrong with it."""
