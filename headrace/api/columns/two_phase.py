"""An operator in two halves: one before the exchange, and one behind it for what the first one made."""

import pyarrow as pa

from headrace.api.streams.data_stream import DataStream
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_mapping import type_info_from_schema
from headrace.core.types.type_info import TypeInformation


def in_halves(
    before: DataStream,
    halves: tuple[OperatorSpec, OperatorSpec],
    partial_schema: pa.Schema,
    partial_keys: tuple[str, ...],
    output_type: TypeInformation,
    *,
    key_type: TypeInformation | None = None,
    name: str,
    description: str,
) -> DataStream:
    """Add the first half to what makes `before`, which is not keyed, and the second one keyed by `partial_keys`.

    `partial_schema`: columns that pass between them, of which `partial_keys` are some. `key_type` None: the types of
    these columns. `name` and `description` are the second half's.
    """
    environment = before.get_execution_environment()
    local = environment.add_to_producers(
        halves[0], before.transformation, BatchType(type_info_from_schema(partial_schema))
    )
    partials = DataStream(environment, local)
    if key_type is None:
        keyed = partials.key_by(*partial_keys)
    else:
        keyed = KeyedStream(partials, None, partial_keys, key_type)
    operator = environment.add_operator(
        halves[1],
        (keyed.transformation,),
        BatchType(output_type),
        name=name,
        description=description,
        is_function=True,
    )
    return DataStream(environment, operator)
