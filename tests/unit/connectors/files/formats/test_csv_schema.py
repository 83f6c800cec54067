"""CSV files as a CsvSchema says; the values are those that Flink reads and the lines those that Flink writes."""

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.files.formats import csv_rows, line_blocks
from headrace.connectors.files.formats.columnar_formats import CsvReaderFormat
from headrace.connectors.files.formats.csv_schema import CsvSchema, CsvSchemaBuilder
from headrace.connectors.files.formats.csv_writer import CsvBulkWriters
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.table import DataTypes
from tests.unit.connectors.replays import Life, lives, rows_of


def pair() -> CsvSchemaBuilder:
    return CsvSchema.builder().add_number_column("id", DataTypes.INT()).add_string_column("name")


def read(path: Path, schema: CsvSchema, text: str, attempts: list[Life] | None = None) -> list[Any]:
    """What a job reads of a file, whatever attempts of it fail."""
    file = path / "some.csv"
    file.write_bytes(text.encode())
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(file))
    rows = rows_of(source.build(), attempts or [], schema.row_type)
    return [tuple(row) for row in rows]


READ: dict[str, tuple[CsvSchema, str, list[Any]]] = {
    "quotes": (
        pair().build(),
        '1,"a,b"\n2,"say ""hi"""\n3,"two\nlines"\n4, "x"\n',
        [(1, "a,b"), (2, 'say "hi"'), (3, "two\nlines"), (4, ' "x"')],
    ),
    "spaces": (pair().build(), " 1 , ab \n", [(1, " ab ")]),
    "empty text": (pair().build(), "1,\n", [(1, "")]),
    "null": (
        pair().set_null_value("NULL").build(),
        '1,NULL\nNULL,b\n3,"NULL"\n',
        [(1, None), (None, "b"), (3, None)],
    ),
    "empty null": (pair().set_null_value("").build(), ",a\n2,\n", [(None, "a"), (2, None)]),
    "comments": (
        pair().set_allow_comments().build(),
        "#c\n1,a\n # d\n2,#b\n#end",
        [(1, "a"), (2, "#b")],
    ),
    "comments between lines of Windows": (
        pair().set_allow_comments().build(),
        "#c\r\n1,a\r\n#d\r\n2,b\r\n",
        [(1, "a"), (2, "b")],
    ),
    "no comments": (
        CsvSchema.builder().add_string_column("a").build(),
        "#c\nb\n",
        [("#c",), ("b",)],
    ),
    "separator": (pair().set_column_separator("|").build(), "1|a,b\n", [(1, "a,b")]),
    "quote": (
        pair().set_quote_char("'").build(),
        "1,'a,b'\n2,'it''s'\n",
        [(1, "a,b"), (2, "it's")],
    ),
    "no quote": (pair().disable_quote_char().build(), '1,"a"\n', [(1, '"a"')]),
    "escape": (
        pair().set_escape_char("\\").build(),
        '1,a\\,b\n2,"x\\"y"\n3,a\\nb\n4,a\\\\b\n',
        [(1, "a,b"), (2, 'x"y'), (3, "a\nb"), (4, "a\\b")],
    ),
    "header by place": (pair().set_use_header().build(), "name,id\n1,a\n", [(1, "a")]),
    "strict header": (
        pair().set_use_header().set_strict_headers().build(),
        "id,name\n1,a\n",
        [(1, "a")],
    ),
    "first row": (
        pair().set_use_header().set_skip_first_data_row().build(),
        "id,name\n7,x\n1,a\n",
        [(1, "a")],
    ),
    "line ends": (
        pair().build(),
        "1,a\r\n2,b\r3,c\r\n4,d",
        [(1, "a"), (2, "b"), (3, "c"), (4, "d")],
    ),
    "booleans": (
        CsvSchema.builder().add_boolean_column("b").build(),
        "true\nfalse\nTRUE\nyes\n1\n",
        [(True,), (False,), (True,), (False,), (False,)],
    ),
    "numbers": (
        CsvSchema.builder()
        .add_number_column("a")
        .add_number_column("b", DataTypes.DOUBLE())
        .add_number_column("c", DataTypes.DECIMAL(10, 2))
        .add_number_column("d", DataTypes.TINYINT())
        .build(),
        "123456789012,1.5,3.145,7\n",
        [(123456789012, 1.5, Decimal("3.15"), 7)],
    ),
    "arrays": (
        CsvSchema.builder()
        .add_number_column("id")
        .add_array_column("l", ",")
        .add_array_column("m", element_type=DataTypes.INT())
        .set_column_separator("|")
        .build(),
        "1|a,b|1;2;3\n2||\n3|x|4\n",
        [(1, ["a", "b"], [1, 2, 3]), (2, [], []), (3, ["x"], [4])],
    ),
    "separator of all arrays": (
        CsvSchema.builder()
        .add_array_column("m")
        .add_array_column("n")
        .set_array_element_separator("#")
        .remove_array_element_separator(1)
        .build(),
        "a#b; c,a#b; c\n",
        [(["a#b", " c"], ["a", "b; c"])],
    ),
    "byte order mark": (pair().build(), "\ufeff1,a\n", [(1, "a")]),
    "array without separator": (
        CsvSchema.builder()
        .add_array_column("m")
        .remove_array_element_separator(0)
        .disable_array_element_separator()
        .build(),
        "a;b\n",
        [(["a;b"],)],
    ),
    "values behind the last": (
        pair().set_any_property_name("rest").build(),
        "1,a,c,d\n",
        [(1, "a")],
    ),
}


@pytest.mark.parametrize("case", READ)
def test_values_are_read_as_the_schema_says(case: str, tmp_path: Path) -> None:
    schema, text, expected = READ[case]
    assert read(tmp_path, schema, text) == expected


@pytest.mark.parametrize(
    ("schema", "text", "says"),
    [
        (pair().build(), "1,a\n2\n", r"row 2: it has 1 values, but the schema has 2 columns"),
        (pair().build(), "1,a\n\n", r"row 2: it has 1 values"),
        (pair().build(), "1,a,c\n", r"row 1: it has 3 values"),
        (pair().build(), "x,a\n", r"row 1: the column 'id' is Integer, not 'x'"),
        (pair().build(), ",a\n", r"row 1: the column 'id' is Integer, not ''"),
        (pair().build(), "3000000000,a\n", r"it must be within -2147483648\.\.2147483647"),
        (pair().build(), '1,"a\n', r"row 1: a quote is opened but not closed"),
        (pair().build(), '1,"a"b\n', r"row 1: a quote is opened but not closed at the end"),
        (
            pair().set_use_header().set_strict_headers().build(),
            "name,id\n1,a\n",
            r"the header is name, id, not id, name",
        ),
    ],
)
def test_what_does_not_fit_names_file_row_and_reason(
    schema: CsvSchema, text: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"the file '.*some\.csv', .*{says}"):
        read(tmp_path, schema, text)


def test_bytes_that_are_no_utf_8_are_named_with_their_offset(tmp_path: Path) -> None:
    file = tmp_path / "latin.csv"
    file.write_bytes(b"1,a\n2,\xe9\n")
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(pair().build()), str(file)
    )
    with pytest.raises(ValueError, match=r"latin\.csv' is not UTF-8: 0xe9 at byte 6"):
        rows_of(source.build(), [], pair().build().row_type)


def test_a_reader_that_fails_and_comes_back_brings_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "BATCH_ROWS", 3)
    monkeypatch.setattr(csv_rows, "CHUNK_SIZE_BYTES", 7)
    monkeypatch.setattr(line_blocks, "CHUNK_SIZE_BYTES", 7)
    schema = pair().set_use_header().set_allow_comments().build()
    text = "id,name\n" + "".join(f'{n},"a\n""{n}"\r\n# no\r\n' for n in range(25))

    @given(lives())
    def check(attempts: list[Life]) -> None:
        expected = [(n, f'a\n"{n}') for n in range(25)]
        assert sorted(read(tmp_path, schema, text, attempts)) == expected

    check()


def written(schema: CsvSchema, value_type: TypeInformation, *rows: tuple[Any, ...]) -> list[str]:
    stream = io.BytesIO()
    content = CsvBulkWriters.for_schema(schema).open(stream, value_type)
    content.write(RecordBatch.of_rows(BatchType(value_type), [Row(*row) for row in rows]))
    content.finish()
    assert content.size_bytes == len(stream.getvalue())
    return stream.getvalue().decode().splitlines(keepends=True)


PAIR = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


def test_an_array_a_null_and_a_header_are_written_as_the_schema_says() -> None:
    schema = CsvSchema.builder().add_array_column("l", ",", DataTypes.INT()).add_boolean_column("b")
    schema = schema.set_column_separator(";").set_null_value("-").set_line_separator("\r\n")
    value_type = Types.ROW_NAMED(["l", "b"], [Types.LIST(Types.INT()), Types.BOOLEAN()])
    lines = written(schema.set_use_header().build(), value_type, ([1, 2], True), (None, None))
    assert [line.replace('"', "") for line in lines] == ["l;b\r\n", "1,2;true\r\n", "-;-\r\n"]


def test_a_stream_without_the_columns_of_the_schema_is_refused() -> None:
    writers = CsvBulkWriters.for_schema(pair().build())
    with pytest.raises(ProgramError, match=r"have 1 columns \(id\), but the CSV schema has 2"):
        writers.check_input(Types.ROW_NAMED(["id"], [Types.INT()]))


LINES = [
    "1,a\n", '2,"a,b"\n', '3,"say ""hi"""\n', "4,\n", '5," lead"\n', '6,"it\'s"\n', '7,"back\\slash"\n', "8,a;b|c\n",
    "9,é\n", '10,"longer text that is more than twenty four characters"\n', "11,-x\n", '12,"+1"\n',
]  # fmt: skip
TEXTS = [
    "a", "a,b", 'say "hi"', None, " lead", "it's", "back\\slash", "a;b|c",
    "é", "longer text that is more than twenty four characters", "-x", "+1",
]  # fmt: skip


def test_texts_get_quotes_where_they_do_in_flink() -> None:
    rows = list(enumerate(TEXTS, 1))
    assert written(pair().build(), PAIR, *rows) == LINES
    barred = written(pair().set_column_separator("|").build(), PAIR, (1, "a"), (2, "é"))
    assert barred == ['1|"a"\n', "2|é\n"]
    plain = written(pair().disable_quote_char().build(), PAIR, (1, "a,b"))
    assert plain == ["1,a,b\n"]
    escaped = written(pair().set_escape_char("\\").build(), PAIR, (1, 'a"\\'))
    assert escaped == ['1,"a""\\\\"\n']


def test_numbers_are_written_as_in_flink() -> None:
    schema = CsvSchema.builder().add_number_column("a").add_number_column("b", DataTypes.DOUBLE())
    schema = schema.add_number_column("c", DataTypes.FLOAT())
    schema = schema.add_number_column("d", DataTypes.DECIMAL(10, 2))
    types = [Types.LONG(), Types.DOUBLE(), Types.FLOAT(), Types.BIG_DEC()]
    value_type = Types.ROW_NAMED(["a", "b", "c", "d"], types)
    rows = [(123456789012, 100.0, 0.1, Decimal("3.10")), (-1, 1e-7, 16777216.0, Decimal("1234.9"))]
    assert written(schema.build(), value_type, *rows) == [
        "123456789012,100.0,0.1,3.1\n",
        "-1,1.0E-7,1.6777216E7,1234.9\n",
    ]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    texts = st.none() | st.text("a ,;|'\"\\\r\n#é0", max_size=30)

    @given(
        st.lists(st.tuples(st.integers(-9, 9), texts)),
        st.sampled_from([None, "\\"]),
        st.sampled_from([",", "|", "'"]),
    )
    def check(rows: list[tuple[int, str | None]], escape: str | None, separator: str) -> None:
        builder = pair().set_null_value("null").set_column_separator(separator)
        if escape is not None:
            builder.set_escape_char(escape)
        text = "".join(written(builder.build(), PAIR, *rows))
        assert read(tmp_path, builder.build(), text) == rows

    check()
