"""FormParser reads forms whatever pieces their bytes come in, and refuses what is no form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.rest.programs.form_parser import (
    FormError,
    FormEvent,
    FormParser,
    PartBegun,
    PartBytes,
    boundary_of,
    header_parameters,
)


def form(content: bytes, name: str = "job.py") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--b--\r\n"


def joined(events: list[FormEvent]) -> tuple[list[PartBegun], bytes]:
    begun = [each for each in events if isinstance(each, PartBegun)]
    return begun, b"".join(each.content for each in events if isinstance(each, PartBytes))


@given(
    st.binary(max_size=200).filter(lambda content: b"\r\n--b" not in b"\r\n" + content),
    st.integers(1, 40),
)
def test_a_file_is_the_same_in_pieces_of_any_size(content: bytes, size: int) -> None:
    parser, events = FormParser(b"b"), list[FormEvent]()
    whole = form(content)
    for start in range(0, len(whole), size):
        events += parser.feed(whole[start : start + size])
    assert joined(events) == ([PartBegun("jarfile", "job.py")], content)
    assert parser.is_whole


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    parser = FormParser(b"b")
    try:
        parser.feed(b"--b" + content)
    except FormError as error:
        assert str(error)


def test_fields_without_a_file_are_told_too() -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n' + form(b"2")
    begun, content = joined(FormParser(b"b").feed(body))
    assert [each.file_name for each in begun] == ["", "job.py"]
    assert content == b"12"


def test_a_form_that_breaks_off_is_not_whole() -> None:
    parser = FormParser(b"b")
    parser.feed(form(b"content")[:-6])
    assert not parser.is_whole


def test_headers_without_end_are_refused() -> None:
    with pytest.raises(FormError, match="too long"):
        FormParser(b"b").feed(b"--b\r\n" + b"x" * 10_000)


def test_a_boundary_that_goes_on_is_refused() -> None:
    with pytest.raises(FormError, match="not followed by a line end"):
        FormParser(b"b").feed(b"--bc\r\n")


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=b", "x" * 300],
)
def test_a_content_type_without_a_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(FormError):
        FormParser(boundary_of(content_type))


def test_the_boundary_of_a_content_type_may_be_quoted() -> None:
    assert boundary_of('multipart/form-data; boundary="a b"') == b"a b"


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="x"; filename="a;b.py"', "a;b.py"),
        (r'form-data; filename="a\"b\\c.py"', 'a"b\\c.py'),
        (r'form-data; filename="C:\jobs\job.py"', r"C:\jobs\job.py"),
        ("form-data; FileName = job.py ; name=x;", "job.py"),
        ("form-data; filename=\"job.py\"; filename*=UTF-8''%C3%A4.py", "\xe4.py"),
        ("form-data; filename*=idna''job.py", "job.py"),
        ("form-data; filename*=utf-8''%ED%A0%80.py", "\ufffd\ufffd\ufffd.py"),
        ('form-data;\r\n filename="job.py"', "job.py"),
        (f"form-data; filename*{'9' * 5_000}=job.py", ""),
    ],
)
def test_the_name_of_a_file_is_read_as_clients_write_it(disposition: str, name: str) -> None:
    body = f"--b\r\nContent-Disposition: {disposition}\r\n\r\n".encode()
    (begun,), _ = joined(FormParser(b"b").feed(body))
    assert begun.file_name == name


@pytest.mark.parametrize(
    "value", ["a; b", 'a; b="c', "a; b=c d", "a; b=1; B=2", 'a; b="c"d', ";" * 9 + "b"]
)
def test_parameters_that_cannot_be_read_are_refused(value: str) -> None:
    with pytest.raises(FormError, match="a header"):
        header_parameters(value)


@given(st.text(max_size=80) | st.text('a=;"\\\\ ', max_size=80))
def test_any_header_is_read_or_refused(value: str) -> None:
    try:
        word, parameters = header_parameters(value)
    except FormError as error:
        assert str(error)
    else:
        assert word == word.lower()
        assert all(name and name == name.lower() for name in parameters)
