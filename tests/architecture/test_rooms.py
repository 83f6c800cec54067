"""Inside a large folder, imports lead from the higher rooms to the lower ones."""

import pytest

from tests.architecture.floor_plan import PACKAGE, ROOT, Import, imports_of, source_files
from tests.architecture.rooms import ON_TOP, ROOMS, folders_with, room_violations

MODULES_MAX = 25
"""Of one folder; with more of them it has rooms."""


def test_every_import_within_a_house_leads_down() -> None:
    found = [
        text for file in source_files() for one in imports_of(file) for text in room_violations(one)
    ]
    assert found == []


@pytest.mark.parametrize("house", ROOMS)
def test_every_room_stands_in_a_layer(house: str) -> None:
    named = {room for layer in ROOMS[house] for names in layer for room in names.split("+")}
    assert folders_with(house) - ON_TOP.get(house, frozenset()) <= named


@pytest.mark.parametrize("house", ROOMS)
def test_layers_name_what_there_is(house: str) -> None:
    root = PACKAGE.joinpath(*house.split("."))
    named = {room for layer in ROOMS[house] for names in layer for room in names.split("+")}
    assert {
        name for name in named if not (root / name).is_dir() and not (root / f"{name}.py").exists()
    } == set()


def test_no_folder_has_more_modules_than_can_be_looked_over() -> None:
    counts = {
        str(folder.relative_to(PACKAGE)): sum(
            1 for file in folder.glob("*.py") if file.name != "__init__.py"
        )
        for folder in {file.parent for file in source_files()}
    }
    assert {name: count for name, count in counts.items() if count > MODULES_MAX} == {}


@pytest.mark.parametrize(
    ("file", "module", "is_wrong"),
    [
        ("network/wire/frames.py", "headrace.network.gates.gate.InputGate", True),
        ("network/gates/gate.py", "headrace.network.wire.frames.Data", False),
        ("network/wire/frames.py", "headrace.network.environment.NetworkEnvironment", True),
        ("network/environment.py", "headrace.network.gates.gate.InputGate", False),
        ("network/writers/record_writer.py", "headrace.network.transport.server.Server", True),
        (
            "cluster/job_master/slots/slot_pool.py",
            "headrace.cluster.job_master.scheduler.scheduler_states.Created",
            True,
        ),
        ("api/streams/data_stream.py", "headrace.api.columns.expressions.col", False),
        ("api/columns/expressions.py", "headrace.api.streams.data_stream.DataStream", False),
    ],
)
def test_the_check_tells_imports_that_lead_up_from_those_that_lead_down(
    file: str, module: str, is_wrong: bool
) -> None:
    assert bool(room_violations(Import(PACKAGE / file, 1, module))) is is_wrong
    assert ROOT in PACKAGE.parents
