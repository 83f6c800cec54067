"""FunctionOperator: the life of one user function inside an operator."""

from typing import Any

from headrace.functions.specs import FunctionSpec
from headrace.operators.operator import Operator, OperatorContext
from headrace.operators.runtime_context import OperatorRuntimeContext
from headrace.operators.user_code import close_function, open_function
from headrace.state.backend import KeyedStateBackend


class FunctionOperator(Operator):
    """Base of operators around one user function: opened after the operator, closed once, even after a failure."""

    is_per_record = True
    _is_function_open = False

    def __init__(self, spec: FunctionSpec) -> None:
        self._function: Any = spec.function

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._operator_state = context.state.operator_state

    @property
    def _has_keyed_inputs(self) -> bool:
        return all(batch_type.key_type is not None for batch_type in self.context.types.inputs)

    def _open_function(self, backend: KeyedStateBackend | None) -> None:
        """Open the function; without a backend it cannot ask for keyed state."""
        self._is_function_open = True
        runtime_context = OperatorRuntimeContext(self.context, backend, self._operator_state)
        open_function(self._function, runtime_context, self.context.operator_name)

    def close(self) -> None:
        if self._is_function_open:
            self._is_function_open = False
            close_function(self._function, self.context.operator_name)
