"""Rooms as a table: the folders inside a folder of `headrace/`, from the lowest layer to the highest.

A room may import those of the layers below it, and nothing else of its house. A module beside the rooms is the house's
own: it may import every room, and no room may import it, but for those that stand in a layer themselves.
docs/generated/floor_plan.md is made from this table.
"""

from typing import Final

from tests.architecture.floor_plan import PACKAGE, Import, module_of

Layers = tuple[tuple[str, ...], ...]

ROOMS: Final[dict[str, Layers]] = {
    "network": (
        ("errors",),
        ("memory", "flow"),
        ("wire",),
        ("batches",),
        ("partitions",),
        ("stored", "sessions"),
        ("writers", "transport"),
        ("gates", "ingest"),
    ),
    "cluster.job_master": (
        ("job_notices",),
        ("slots", "results"),
        ("executions",),
        ("failover",),
        ("connections",),
        ("scheduler",),
        ("coordinators",),
        ("checkpointing",),
    ),
    "cluster.job_master.checkpointing": (
        ("protocol", "assignment", "commits"),
        ("store",),
    ),
    "task": (
        ("environment", "mailbox", "metrics", "paced_rows"),
        ("chain", "input"),
        ("checkpointing",),
        ("user_payloads",),
        ("batch",),
    ),
    "operators": (
        ("runtime",),
        ("columns", "record", "sources_sinks", "windowing"),
    ),
    "state": (
        ("columns", "evolution", "ttl"),
        ("backend", "keyed_chunks"),
        ("restored_keyed_state",),
        ("queryable",),
        ("typed_state",),
        ("heap",),
        ("rocksdb",),
    ),
    "checkpoint": (
        ("errors",),
        ("handles", "options"),
        ("metadata",),
        ("storage",),
        ("retention",),
    ),
    "metrics": (
        ("metric_name", "scopes"),
        ("cluster_names", "instruments"),
        ("groups",),
        ("names", "readings"),
        ("reporters",),
    ),
    "connectors.files": (
        ("paths",),
        ("formats",),
        ("source", "sink"),
    ),
    "spark": (
        ("options", "job_descriptions"),
        ("master",),
        ("session",),
        ("workers",),
        ("dataframes",),
        ("state_tables",),
        ("batch",),
    ),
    "api": (
        ("transformations", "html_text"),
        ("executors+client+settings", "function_checks"),
        ("streams+columns+environment+stream_graph_generator",),
    ),
}
"""What `+` joins knows each other: streams make columns, columns make streams, and both know their environment."""
ON_TOP: Final[dict[str, frozenset[str]]] = {"network": frozenset({"trace"})}
"""Rooms that use their whole house, and stand in no layer."""


def house_of(module: str) -> str:
    """Return the innermost house that a module ("headrace.network.wire.frames") is in, or nothing."""
    parts = module.split(".")[1:]
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        if name in ROOMS:
            return name
    return ""


def room_of(house: str, module: str) -> str:
    """Return the room of a house, or the module beside its rooms, that a module belongs to."""
    return module.removeprefix(f"headrace.{house}.").split(".")[0]


def layer_of(house: str, room: str) -> int | None:
    """Return the layer of a room, counted from the lowest; None for the house's own modules."""
    for number, layer in enumerate(ROOMS[house]):
        if any(room in names.split("+") for names in layer):
            return number
    return None


def _are_joined(house: str, one: str, other: str) -> bool:
    return any({one, other} <= set(names.split("+")) for layer in ROOMS[house] for names in layer)


def room_violations(imported: Import) -> list[str]:
    """Say what is wrong with an import within one house or several; nothing where it leads down."""
    source, target = module_of(imported.file), imported.module
    found: list[str] = []
    for house in ROOMS:
        prefix = f"headrace.{house}."
        if not (f"{source}.".startswith(prefix) and target.startswith(prefix)):
            continue
        of, to = room_of(house, source), room_of(house, target)
        if of == to or source == f"headrace.{house}":
            continue
        high, low = layer_of(house, of), layer_of(house, to)
        if high is None:
            continue
        if low is None or (low >= high and not _are_joined(house, of, to)):
            found.append(f"{imported}: {of} is not above {to} in {house}")
    return found


def folders_with(house: str) -> set[str]:
    """Return the folders of a house that hold modules."""
    root = PACKAGE.joinpath(*house.split("."))
    return {path.name for path in root.iterdir() if (path / "__init__.py").exists()}


def modules_beside_rooms(house: str) -> list[str]:
    """Return the names of a house's own modules, which put its rooms together: those that stand in no layer."""
    root = PACKAGE.joinpath(*house.split("."))
    names = sorted(path.stem for path in root.glob("*.py") if path.stem != "__init__")
    return [name for name in names if layer_of(house, name) is None]
