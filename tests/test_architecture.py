"""The direction of imports (ARCHITECTURE.md): each room may import itself and the rooms listed before it."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pytest_specprobe

PACKAGE = Path(pytest_specprobe.__file__).parent
LAYERS = (
    {"__init__"},
    {"foreign"},
    {"errors", "private", "urls", "reading", "secret"},
    {"findings"},
    {"profiles"},
    {"settings"},
    {"engines"},
    {"checkpoint"},
    {"staging"},
    {"measure"},
    {"server", "decide"},
    {"report"},
    {"probe"},
    {"options", "hookspecs", "cli", "suite"},
    {"active"},
    {"plugin"},
)
FINDING_ROOMS = {"file", "config", "target", "tensor", "head", "fc", "rope", "vocab", "proof", "measure"}
FINDING_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
PYTEST_MAY_BE_IMPORTED_BY = {"plugin", "active", "options", "hookspecs", "suite"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "overlay" not in path.parts)


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ([f"{node.module}.{a.name}" for a in node.names] if node.module else [])


def level(room: str) -> int:
    return next(i for i, rooms in enumerate(LAYERS) if room in rooms)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    for name in imports_of(path):
        top, _, rest = name.partition(".")
        assert top not in {"torch", "sglang", "transformers", "sgl_kernel"}, f"{path.name} imports {name}"
        if top in {"pytest", "_pytest", "pytest_benchmark"}:
            assert room in PYTEST_MAY_BE_IMPORTED_BY, f"{path.name} imports {name}"
        if top == "pytest_specprobe" and rest:
            other = rest.split(".")[0]
            if other in {r for rooms in LAYERS for r in rooms} and other != room:
                assert level(other) < level(room), f"{path.name} ({room}) imports {name} ({other})"


def test_every_room_has_a_layer() -> None:
    known = {room for rooms in LAYERS for room in rooms}
    assert {room_of(path) for path in MODULES} <= known


ROOT = PACKAGE.parent
NAMES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in MODULES}


def place(parts: Sequence[str]) -> str:
    """Return the sub-room of a module, or the module itself where it lies beside the sub-rooms."""
    return ".".join(parts[:2])


def places_imported(path: Path) -> Iterator[str]:
    """The other places of its own room that a module imports."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    for name in imports_of(path):
        inner = name.removeprefix("pytest_specprobe.")
        module = inner if inner in NAMES else inner.rpartition(".")[0]
        other = module.split(".")
        if other[0] == parts[0] and len(other) > 1 and place(other) != place(parts):
            yield place(other)


@pytest.mark.parametrize("room", sorted({room_of(path) for path in MODULES if path.parent != PACKAGE}))
def test_the_places_of_a_room_import_in_one_direction(room: str) -> None:
    """A sub-room counts as one place: what it holds may import each other, and no two places import each other."""
    graph = TopologicalSorter[str]()
    for path in MODULES:
        if room_of(path) == room and path.name != "__init__.py":
            graph.add(place(path.relative_to(PACKAGE).with_suffix("").parts), *places_imported(path))
    graph.prepare()


TESTS = sorted(ROOT.glob("tests/**/*.py"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_helpers_are_imported_from_support(path: Path) -> None:
    """Nothing is imported from a test module or a conftest, but for the root's by its own test."""
    for name in imports_of(path):
        parts = name.split(".")
        assert parts[0] != "tests" or not any(p == "conftest" or p.startswith("test_") for p in parts), name
        assert parts[0] != "conftest" or path.name == "test_tiers.py", name


@pytest.mark.parametrize("room", sorted(p.name for p in (ROOT / "tests").iterdir() if (PACKAGE / p.name).is_dir()))
def test_tests_lie_where_their_rooms_do(room: str) -> None:
    """A folder of tests that has a room's name has sub-rooms' names below it."""
    folders = {p.name for p in (ROOT / "tests" / room).iterdir() if p.is_dir() and any(p.glob("test_*.py"))}
    rooms = {p.name for p in (PACKAGE / room).iterdir() if p.is_dir()}
    assert folders <= rooms


FEW = 5


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_function_takes_many_arguments_by_place(path: Path) -> None:
    """But hooks, whose arguments pytest names; an overlay has SGLang's own signatures and is not looked at."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("pytest_"):
            places = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in {"self", "cls"}]
            assert len(places) <= FEW, f"{path.name}:{node.lineno} {node.name}"


def ids_in(path: Path) -> Iterator[str]:
    """The finding ids that a module spells, but for those that a static check folds into (``follows=``)."""
    tree = ast.parse(path.read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "follows")
    folded = {id(inner) for keyword in calls for inner in ast.walk(keyword.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in folded:
            room, dot, slug = node.value.partition(".")
            if dot and room in FINDING_ROOMS and FINDING_SLUG.fullmatch(slug):
                yield node.value


def test_a_finding_s_id_is_spelt_once() -> None:
    """Who goes by a finding takes its id from where it is made: a misspelt one would never be seen."""
    spelt = Counter(name for path in MODULES for name in ids_in(path))
    assert {name: count for name, count in spelt.items() if count > 1} == {"fc.weight": 3}, "that one is a tensor"
    assert spelt["measure.crowded-machine"] == 1


# Standard library only, started by path: it reads one line of its own parent, and /proc.
OWN_READING = {"reading.py", "server/process/supervisor.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_one_reader_parses_what_others_wrote(path: Path) -> None:
    """JSON and TOML are parsed in ``reading.py`` alone, with its bounds; ``json.dumps`` is everybody's."""
    if str(path.relative_to(PACKAGE)) in OWN_READING:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "json":
            assert node.attr not in {"load", "loads", "JSONDecoder"}, f"{path.name}:{node.lineno}"
    assert not {"tomllib", "pickle", "ast"} & set(imports_of(path)), path.name
