"""The process of an uploaded program knows what to run: the file, a module of it, or what a PythonDriver is told."""

from pathlib import Path

import pytest

from headrace.cli.program_options import PYTHON_OPTIONS, REFUSED_OPTIONS
from headrace.cli.uploaded_program import PYTHON_DRIVER, program_of
from headrace.client.program import Program
from headrace.core.errors import ProgramError
from headrace.rest.programs.program_messages import ProgramRequest


def test_a_file_is_run_and_an_entry_class_ignored() -> None:
    request = ProgramRequest("/up/1_job.py", ("a", "b"), "org.example.Main", {"k": "v"})
    assert program_of(request) == (Program(Path("/up/1_job.py"), ("a", "b")), {"k": "v"})


def test_a_module_of_an_archive_is_run_and_workers_get_the_archive() -> None:
    request = ProgramRequest("/up/1_jobs.zip", (), "jobs.main", {"python.files": "/lib.py"})
    program, settings = program_of(request)
    assert program == Program(Path("/up/1_jobs.zip"), module="jobs.main")
    assert settings == {"python.files": "/up/1_jobs.zip,/lib.py"}


@pytest.mark.parametrize(
    ("arguments", "path", "module", "rest"),
    [
        (("-py", "job.py", "-x", "1"), "/up/1_job.py", None, ("-x", "1")),
        (("-py", "/other/place.py"), "/other/place.py", None, ()),
        (("--pyModule", "jobs.main", "a"), "/up/1_job.py", "jobs.main", ("a",)),
    ],
)
def test_a_python_driver_is_told_its_program(
    arguments: tuple[str, ...], path: str, module: str | None, rest: tuple[str, ...]
) -> None:
    uploaded = "/up/1_job.zip" if module else "/up/1_job.py"
    program, _ = program_of(ProgramRequest(uploaded, arguments, PYTHON_DRIVER))
    assert program == Program(Path(uploaded if module else path), rest, module)


def test_options_of_a_python_driver_become_settings() -> None:
    arguments = (
        "-pyfs",
        "/lib",
        "-pyreq",
        "/requirements.txt",
        "-pyclientexec",
        "python3",
        "-py",
        "job.py",
    )
    _, settings = program_of(ProgramRequest("/up/1_job.py", arguments, PYTHON_DRIVER))
    assert settings == {"python.files": "/lib", "python.requirements": "/requirements.txt"}


def test_a_python_driver_knows_the_options_of_the_command_line() -> None:
    names = [name for each in PYTHON_OPTIONS for name in each.names]
    names += [name for refused, _ in REFUSED_OPTIONS for name in refused if "-py" in name]
    arguments = (*(word for name in names for word in (name, name)), "own")
    program, settings = program_of(ProgramRequest("/up/1_job.py", arguments, PYTHON_DRIVER))
    assert program.arguments == ("own",)
    assert settings == {each.setting.key: each.names[-1] for each in PYTHON_OPTIONS}


@pytest.mark.parametrize("arguments", [("-py",), ("-pybogus", "x")])
def test_an_option_that_is_none_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ProgramError, match=arguments[0]):
        program_of(ProgramRequest("/up/1_job.py", arguments, PYTHON_DRIVER))
