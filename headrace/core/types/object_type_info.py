"""ObjectTypeInfo: type of immutable objects of the runtime's own classes, such as windows, stored by their fields.

Snapshots name this module.
"""

from collections.abc import Sequence
from typing import Any

from headrace.core.types.basic_type_info import TypeInformation


class ObjectTypeInfo(TypeInformation):
    """Type of immutable objects of `object_class`, which is called with its attributes `field_names`, in order.

    Stored as a struct without nulls, so that readers do not need the class.
    """

    __slots__ = ("field_names", "field_types", "object_class")

    def __init__(
        self,
        object_class: type[Any],
        field_names: Sequence[str],
        field_types: Sequence[TypeInformation],
    ) -> None:
        self.object_class = object_class
        self.field_names = tuple(field_names)
        self.field_types = tuple(field_types)
        super().__init__(object_class.__name__)

    def parts(self) -> tuple[Any, ...]:
        return self.object_class, self.field_names, self.field_types
