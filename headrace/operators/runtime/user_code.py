"""FunctionOperator: the life of one user function inside an operator.

Calls user code: opens and closes functions, and turns their exceptions into UserCodeErrors.
"""

from collections.abc import Callable
from types import CoroutineType, GeneratorType
from typing import Any

from headrace.core.elements import CancelTaskException
from headrace.core.errors import (
    USER_EXCEPTIONS,
    ErrorDomain,
    HeadraceError,
    RecordTypeError,
    short_repr,
    wrap_user_error,
)
from headrace.core.record_batch import RecordBatch
from headrace.functions.record import Function
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.specs.operator_specs import FunctionSpec
from headrace.operators.runtime.contexts import OperatorRuntimeContext
from headrace.operators.runtime.operator import Operator, OperatorContext
from headrace.state.backend import KeyedStateBackend
from headrace.state.evolution import StateIncompatibleError


def method_of(function: Any, name: str) -> Callable[..., Any]:
    """Return the method `name` of a function object, or the plain callable itself."""
    return getattr(function, name) if isinstance(function, Function) else function


def user_error(error: BaseException, operator_name: str) -> BaseException:
    """Return the error to raise for an exception that left user code.

    Cancellation, and Headrace errors that are not the user's, come from outputs and pass unchanged. So do errors about
    stored state that does not fit the program: no restart helps, while it may help after an error of a function.
    """
    if isinstance(error, CancelTaskException):
        return error
    if isinstance(error, HeadraceError) and error.domain is not ErrorDomain.USER:
        return error
    if isinstance(error, StateIncompatibleError):
        return error
    return wrap_user_error(error, operator_name)


def connector_error(error: BaseException, operator_name: str) -> BaseException:
    """Return the error to raise for an exception that left a reader or writer.

    Headrace errors pass unchanged, except for records that do not fit, which are reported as this operator's.
    """
    says_all = isinstance(error, HeadraceError) and not isinstance(error, RecordTypeError)
    return error if says_all else user_error(error, operator_name)


def open_function(function: Any, runtime_context: RuntimeContext, operator_name: str) -> None:
    """Call the function's `open`, if it is a function class."""
    if isinstance(function, Function):
        try:
            function.open(runtime_context)
        except USER_EXCEPTIONS as error:
            raise user_error(error, operator_name) from error


def close_function(function: Any, operator_name: str) -> None:
    """Call the function's `close`, if it is a function class."""
    if isinstance(function, Function):
        try:
            function.close()
        except USER_EXCEPTIONS as error:
            raise user_error(error, operator_name) from error


def check_records_fit(batch: RecordBatch, operator_name: str) -> None:
    """Make the batch's columns, so that a record that does not fit is attributed to the operator that made it."""
    try:
        batch.columns()
    except RecordTypeError as error:
        raise wrap_user_error(error, operator_name, with_traceback=False) from error
    except USER_EXCEPTIONS as error:  # records are pickled by their own classes
        raise user_error(error, operator_name) from error


def not_iterable(results: Any, method: str) -> TypeError:
    """Return the error that says what a function of many results should have returned."""
    return TypeError(
        f"{method} must return an iterable, be a generator or return None, "
        f"but it returned {type(results).__name__} {short_repr(results)}"
    )


def refuse_generator(result: Any, function_name: str) -> None:
    """Raise TypeError for a generator or a coroutine, which undeclared streams would take as values."""
    if isinstance(result, GeneratorType):
        raise TypeError(
            f"{function_name} must return a value, but it is a generator: yield in flat_map, return here"
        )
    if isinstance(result, CoroutineType):
        result.close()  # closed, as Python would warn that it was never awaited
        raise TypeError(f"{function_name} must return a value, but it is 'async def'")


def is_raised_here(error: BaseException) -> bool:
    """Return whether the function that catches `error` raised it, rather than a Python function that it called."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


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
        """Open the function; without a backend it cannot use keyed state."""
        self._is_function_open = True
        runtime_context = OperatorRuntimeContext(self.context, backend, self._operator_state)
        open_function(self._function, runtime_context, self.context.operator_name)

    def close(self) -> None:
        if self._is_function_open:
            self._is_function_open = False
            close_function(self._function, self.context.operator_name)
