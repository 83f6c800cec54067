"""The examples in the docstrings of the words that users see."""

import doctest
from types import ModuleType

import pytest

from headrace.core import configuration
from headrace.core.types import rows, type_info
from headrace.functions import state_ttl, watermarks


@pytest.mark.parametrize("module", [rows, type_info, configuration, watermarks, state_ttl])
def test_examples_do_what_they_say(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
