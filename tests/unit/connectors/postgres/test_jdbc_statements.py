"""Options of a JdbcSink, and what it refuses while the program is built."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.postgres.options import Statement, parse_statement
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import Types
from headrace.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)

BUILDER = JdbcConnectionOptions.JdbcConnectionOptionsBuilder
PAIR = Types.ROW([Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("sql", "text", "count"),
    [
        ("INSERT INTO t VALUES (?, ?)", "INSERT INTO t VALUES (%s, %s)", 2),
        ("SELECT '?', \"a?\" -- ?\n, ?", "SELECT '?', \"a?\" -- ?\n, %s", 1),
        ("SELECT 'it''s ?' WHERE x % 2 = ?", "SELECT 'it''s ?' WHERE x %% 2 = %s", 1),
        ("SELECT doc ?? 'key', '100%'", "SELECT doc ? 'key', '100%%'", 0),
    ],
)
def test_question_marks_are_values_only_where_they_stand_for_one(
    sql: str, text: str, count: int
) -> None:
    assert parse_statement(sql) == Statement(text, count)


@given(st.text(alphabet="?'\"%a- \n", max_size=20))
def test_what_psycopg_fills_in_is_what_was_counted(sql: str) -> None:
    statement = parse_statement(sql)
    assert (statement.text % (("v",) * statement.parameter_count)).count("%") == sql.count("%")


def test_options_keep_what_they_were_given_and_hide_the_password() -> None:
    url = "jdbc:postgresql://localhost:5432/flights"
    driver = "org.postgresql.Driver"
    builder = BUILDER().with_url(url).with_user_name("me").with_password("secret")
    options = builder.with_driver_name(driver).build()
    assert (options.get_db_url(), options.get_driver_name()) == (url, driver)
    assert (options.get_user_name(), options.get_password()) == ("me", "secret")
    assert options.conninfo == "postgresql://localhost:5432/flights"
    assert options.parameters == {"user": "me", "password": "secret"}
    assert "secret" not in repr(options)


def test_other_databases_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a jdbc:postgresql:// URL"):
        BUILDER().with_url("jdbc:mysql://localhost/x")
    with pytest.raises(ValueError, match=r"not through 'com\.mysql\.Driver'"):
        BUILDER().with_driver_name("com.mysql.Driver")
    with pytest.raises(ValueError, match="the address of the database is missing"):
        BUILDER().build()


def test_execution_options_have_flink_s_defaults_and_bounds() -> None:
    defaults = JdbcExecutionOptions.defaults()
    assert defaults.get_batch_interval_ms() == 0
    assert (defaults.get_batch_size(), defaults.get_max_retries()) == (5000, 3)
    options: Any = JdbcExecutionOptions.builder().with_batch_size(7).with_max_retries(0).build()
    assert (options.batch_size, options.max_retries) == (7, 0)
    for wrong in (
        lambda one: one.with_batch_size(0),
        lambda one: one.with_max_retries(-1),
        lambda one: one.with_batch_interval_ms(-1),
    ):
        with pytest.raises(ValueError, match=r"not -1|not 0"):
            wrong(JdbcExecutionOptions.builder())


def test_a_statement_that_does_not_fit_the_records_is_refused() -> None:
    options = BUILDER().with_url("postgresql://h/d").build()
    with pytest.raises(ProgramError, match="takes 3 values, but records have 2 columns"):
        JdbcSink.sink("INSERT INTO t VALUES (?, ?, ?)", PAIR, options)
    sink = JdbcSink.exactly_once_sink("INSERT INTO t VALUES (?, ?)", PAIR, options)
    with pytest.raises(ProgramError, match="needs records with columns"):
        sink.check_input(Types.PICKLED_BYTE_ARRAY())
