"""The repository's own rules: who may import whom, what the public door opens, what is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

import pyflinkstate
from pyflinkstate.backends.compiled import ALL_COMPILED

PACKAGE = Path(pyflinkstate.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
VALUES = PACKAGE / "api" / "values.py"
#: The floors of the house. A room may import from itself and from those to its right.
ORDER = [
    "__main__",
    "monitor",
    "state_access",
    "testing",
    "datastream",
    "common",
    "metrics",
    "connectors",
    "runtime",
    "backends",
    "api",
    "notebook",
    "errors",
    "doors",
    "version",
]
#: The rooms of the runtime, from the top down: design, section 6.
RUNTIME_ORDER = [
    "program",
    "pipelined",
    "spark",
    "master",
    "queries",
    "engine",
    "tasks",
    "plan",
    "slots",
    "operators",
    "sources",
    "sinks",
    "settings",
    "wire",
    "storage",
]
#: The rooms of the backends, from the top down, with the files that lie beside them.
BACKENDS_ORDER = [
    "rocksdb",
    "hash_map_state_backend",
    "operator_state",
    "heap",
    "ttl",
    "snapshots",
    "flink_format",
    "format",
    "keys",
    "types",
    "values",
    "bound_state",
    "key_groups",
    "wall_clock",
    "compiled",
]
#: Houses of several rooms.
HOUSES = {"runtime": RUNTIME_ORDER, "backends": BACKENDS_ORDER}
#: These name each other's files: the doors are not compiled, so a call through one would not be native.
COMPILED = {f"pyflinkstate.{name}" for name in (*ALL_COMPILED, "backends.values.checked")}
#: What several folders of tests have.
SHARED_NAMES = {"conftest.py"}
#: Only these may name each other: a method of each returns another one.
FLUENT = {
    "pyflinkstate.runtime.program.connected_streams",
    "pyflinkstate.runtime.program.data_stream",
    "pyflinkstate.runtime.program.environment",
    "pyflinkstate.runtime.program.keyed_stream",
}
TYPE_CIRCLES = [
    {"pyflinkstate.api.context", "pyflinkstate.api.functions", "pyflinkstate.api.state"},
    FLUENT,
]
MOST_FILES_IN_A_ROOM = 17
MOST_USES_OF_ANY = 600
MOST_METHODS = 25
MOST_ATTRIBUTES = 15
_PYFLINK = "PyFlink's surface"
#: The classes that may have more, and why.
LARGE_CLASSES = {
    "backends/heap/copy_on_write_state_map.py: CopyOnWriteStateMap": "one structure; a call costs a record",
    "backends/heap/map_state.py: HeapMapState": "PyFlink's map state is one object",
    "backends/heap/timer_queue.py: TimerQueue": "one structure; a call costs a record",
    "backends/rocksdb/tiered_state_map.py: TieredStateMap": "one structure; a call costs a record",
    "backends/types/codec.py: Codec": "a row of the table of types",
    "runtime/engine.py: EpochGraph": "what an engine has to implement, and the graph",
    "runtime/operators/subtask.py: KeyedSubtask": "a call costs a record",
    "runtime/plan/job_plan.py: JobPlan": "answers all questions to a plan",
    "runtime/program/data_stream.py: DataStream": _PYFLINK,
    "runtime/program/environment.py: StreamExecutionEnvironment": _PYFLINK,
    "runtime/program/environment_settings.py: EnvironmentSettings": "a value for each setting",
    "runtime/program/environment_settings.py: ExecutionConfig": _PYFLINK,
    "runtime/settings/checkpoint_settings.py: CheckpointConfig": _PYFLINK,
    "runtime/sinks/run_area.py: RunArea": "each step between a sink and its folder",
    "runtime/slots/slot_service.py: SlotService": "one process has one state",
    "runtime/spark/epoch_runner.py: SparkRunner": "what Spark runs for a job at once",
    "runtime/storage/checkpoints.py: CheckpointFolders": "each operation on the folders of checkpoints",
    "runtime/wire/messages.py: DeploySlot": "a message has what a slot needs",
}
#: Arguments that a call may pass without their names.
MOST_POSITIONS = 7
#: As many parameters two functions may have in common; more of them become an object.
MOST_SHARED_PARAMETERS = 5
#: Functions of a module that may share more parameters, and why.
SHARED_PARAMETERS = {
    "connectors/delta_sink.py": "a table is a table: its sinks take the same arguments",
    "connectors/iceberg_sink.py": "a table is a table: its sinks take the same arguments",
    "datastream/async_data_stream.py": "each signature of AsyncDataStream is PyFlink's",
    "runtime/operators/windows/windowing.py": "window_operator() checks what WindowOperator takes",
    "runtime/sinks/staged_files.py": "a table is a table: its sinks take the same arguments",
}
#: What waits if it is called without a timeout: see ``wait_for`` in ``runtime/wire/time.py``.
WAITS = {"get", "result", "join", "wait", "wait_for", "acquire"}
WAITING_ROOMS = {"runtime", "monitor", "state_access"}
#: Objects of which such a method returns at once: states, and what a job knows of itself so far.
ANSWER_AT_ONCE = {
    "TaskContext",
    "state",
    "self._state",
    "running.contents",
    "GlobalWindow",
    "job",
    "self._job",
}
#: What may wait for ever, and why.
ENDLESS = {
    "runtime/slots/process.py: self._something.get": "for lines of its own process, with which it ends",
    "runtime/sources/spark_sources.py: self._changed.wait_for": "for its job, which always closes its source",
    "runtime/program/dataframes/processing.py: self.client.cancel().result": "for its job, which always ends",
    "runtime/program/dataframes/processing.py: self.client.stop_with_savepoint(savepoint_directory=savepoint)"
    ".result": "for its job, which always answers",
    "runtime/program/dataframes/processing.py: other.client.get_job_status().result": "it is done",
    "monitor/hub.py: threading.Event().wait": "for Ctrl-C of the user",
    "monitor/web/server.py: self._ended.wait": "for its owner, with which it ends",
}
#: They follow PyFlink's surface, a file a concept, and users import from the room.
PUBLIC_ROOMS = {"api", "common", "datastream"}


def module_of(path: Path) -> str:
    return ".".join(("pyflinkstate", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {module_of(path): path for path in FILES}


def room(module: str) -> str:
    return module.split(".")[1] if module.startswith("pyflinkstate.") else ""


def house_room(module: str) -> tuple[str, str]:
    """Return the house that a module is in, and its room there; nothing for what is in no house."""
    parts = module.split(".")
    inside = parts[0] == "pyflinkstate" and len(parts) > 2 and parts[1] in HOUSES
    return (parts[1], parts[2]) if inside else ("", "")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all that a file is made of, the module first."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> list[str]:
    """Return what a file imports, modules of this package by their own names."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in MODULES else module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_imports_go_in_one_direction() -> None:
    assert [
        f"{module} must not import {target}"
        for module, path in MODULES.items()
        for target in imports(path)
        if room(module) and room(target) and ORDER.index(room(target)) < ORDER.index(room(module))
    ] == []


def test_rooms_import_only_rooms_below() -> None:
    assert [
        f"{module} must not import {target}"
        for module, path in MODULES.items()
        for target in imports(path)
        if is_room_above(module, target)
    ] == []


def is_room_above(module: str, target: str) -> bool:
    """Return whether a module is in a room below that of another one of the same house."""
    (house, own), (other_house, other) = house_room(module), house_room(target)
    order = HOUSES.get(house, [])
    return bool(house) and house == other_house and order.index(other) < order.index(own)


def test_names_of_another_room_come_through_its_door() -> None:
    """A name is imported from the room, a module only where its settings are looked up when they are used."""
    assert [
        f"{module} must import {target} through {house_room(target)[1]}"
        for module, path in MODULES.items()
        for node in nodes_of(path)
        if room(module) and isinstance(node, ast.ImportFrom)
        for target in [node.module or ""]
        if not may_name(module, target)
    ] == []


def may_name(module: str, target: str) -> bool:
    """Return whether names of the target may be imported from it."""
    if target.startswith("pyflinkstate.api."):
        return room(module) == "api" or target == "pyflinkstate.api.interval"  # it is compiled
    house, other = house_room(target)
    is_own = house_room(module) == (house, other)
    return not house or is_own or target == f"pyflinkstate.{house}.{other}" or {module, target} <= COMPILED


@cache
def names_for_any() -> frozenset[str]:
    """Return ``Any`` and the names that stand for it, or for something made of it."""
    found = {"Any"}
    for node in nodes_of(VALUES):  # a name stands below those that it is made of
        if isinstance(node, ast.AnnAssign) and mentions(node, found):
            found.add(ast.unparse(node.target))
    return frozenset(found)


def mentions(tree: ast.AST, names: Collection[str]) -> int:
    """Return how often one of the names is in a tree."""
    return sum(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))


def test_any_is_rare() -> None:
    """What is only passed on is an ``object``; ``Any`` is for users, and for what is looked into."""
    assert "Offset" in names_for_any()
    uses = {path: mentions(nodes_of(path)[0], names_for_any()) for path in FILES if path != VALUES}
    assert sum(uses.values()) <= MOST_USES_OF_ANY, sorted(uses, key=uses.__getitem__)[-5:]


def test_names_for_any_keep_their_names() -> None:
    """Under another one they would not be counted."""
    assert [
        f"{path.relative_to(PACKAGE)} calls {alias.name} {alias.asname}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in names_for_any() and alias.asname not in (None, alias.name)
    ] == []


def test_no_room_is_crowded() -> None:
    files = Counter(path.parent for path in FILES if path.name != "__init__.py")
    crowded = {str(folder.relative_to(PACKAGE)): n for folder, n in files.items() if n > MOST_FILES_IN_A_ROOM}
    assert not {name: n for name, n in crowded.items() if name.split("/")[0] not in PUBLIC_ROOMS}


def test_no_class_is_large() -> None:
    """A class with many methods or attributes is several; those that are one are named with the reason."""
    found = {
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and is_large(node)
    }
    assert sorted(found) == sorted(LARGE_CLASSES)


def is_large(node: ast.ClassDef) -> bool:
    """Return whether a class has too many methods, or too many attributes in its body and its methods."""
    methods = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    fields = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
    own = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if ast.unparse(each.value) == "self"
    }
    return len(methods) > MOST_METHODS or len(fields | own) > MOST_ATTRIBUTES


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("".join(f"    def method_{n}(self): ...\n" for n in range(25)), False),
        ("".join(f"    def method_{n}(self): ...\n" for n in range(26)), True),
        ("".join(f"    field_{n}: int\n" for n in range(15)), False),
        ("".join(f"    field_{n}: int\n" for n in range(16)), True),
        ("    def __init__(self):\n" + "".join(f"        self.field_{n} = 0\n" for n in range(16)), True),
    ],
)
def test_what_is_large(body: str, expected: bool) -> None:
    (node,) = ast.parse(f"class Thing:\n{body}").body
    assert isinstance(node, ast.ClassDef)
    assert is_large(node) is expected


def test_no_files_import_each_other() -> None:
    graph = {module: {m for m in imports(path) if m in MODULES} for module, path in MODULES.items()}
    circles = [set(circle) for circle in _circles(graph)]
    assert [sorted(circle) for circle in circles if circle not in TYPE_CIRCLES] == []


def _circles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the sets of modules that can be reached from each other, of two or more."""
    reached = {module: _reached(module, graph) for module in graph}
    seen: set[str] = set()
    for module in graph:
        if module not in seen and module in reached[module]:
            circle = [other for other in reached[module] if module in reached[other]]
            seen.update(circle)
            yield circle


def _reached(module: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [*graph[module]]
    while ahead:
        other = ahead.pop()
        if other not in found:
            found.add(other)
            ahead += graph[other]
    return found


def test_only_the_spark_rooms_import_pyspark() -> None:
    importers = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(name.split(".")[0] == "pyspark" for name in imports(path))
    }
    # Those of `program` name Spark's types in signatures only, under TYPE_CHECKING.
    assert importers == {
        "runtime/spark/epoch_rdds.py",
        "runtime/spark/epoch_runner.py",
        "runtime/spark/row_batches.py",
        "runtime/spark/row_columns.py",
        "runtime/spark/sessions.py",
        "runtime/spark/streaming_queries.py",
        "runtime/spark/worker_tasks.py",
        "runtime/spark/workers.py",
        "runtime/program/environment.py",
        "runtime/program/environment_sources.py",
        "runtime/program/jobs.py",
        "runtime/program/dataframes/options.py",
        "runtime/program/dataframes/processing.py",
        "state_access/spark.py",
    }


def test_nothing_depends_on_the_monitor() -> None:
    """It reads what a job tells and what lies on disk; whoever wants it loads it by its name."""
    assert [
        f"{module} must not import {target}"
        for module, path in MODULES.items()
        for target in imports(path)
        if room(target) == "monitor" and room(module) != "monitor"
    ] == []


def test_a_state_slot_does_not_load_what_it_has_no_use_for() -> None:
    script = (
        "import sys, pyflinkstate.runtime.slots.slot; "
        "sys.exit(not {'asyncio', 'pandas', 'pyspark'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_program_loads_no_http_client() -> None:
    """It takes a good part of what an import costs, and only some programs need one."""
    script = (
        "import sys, pyspark.sql; before = set(sys.modules); "
        "from pyflinkstate import StreamExecutionEnvironment; "
        "sys.exit('http.client' in set(sys.modules) - before)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("name", pyflinkstate.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(pyflinkstate, name).__doc__


def test_type_checkers_see_the_names_that_the_door_opens() -> None:
    script = str(PACKAGE.parent / "scripts" / "write_stub.py")
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pyflinkstate.Nothing  # noqa: B018


def test_every_module_says_what_it_is_for() -> None:
    modules = {path: nodes_of(path)[0] for path in FILES}
    assert [str(path) for path, tree in modules.items() if not ast.get_docstring(tree)] == []


def test_no_call_is_a_long_list_of_positions() -> None:
    """Nobody sees in it what is swapped, and a type checker only what has another type."""
    assert [
        f"{path.relative_to(PACKAGE)}:{node.lineno} must name what it passes to {ast.unparse(node.func)}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and not is_logging(node) and positions(node) > MOST_POSITIONS
    ] == []


def positions(call: ast.Call) -> int:
    return sum(not isinstance(argument, ast.Starred) for argument in call.args)


def is_logging(call: ast.Call) -> bool:
    """Return whether a call is one of a logger: its message says what is what."""
    return "_log." in ast.unparse(call.func)


def test_no_parameter_list_is_spelled_twice() -> None:
    """A list of six or more names belongs into an object; overloads and overrides count as functions."""
    signatures = [
        (str(path.relative_to(PACKAGE)), node, parameters(node.args))
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    long = [one for one in signatures if len(one[2]) > MOST_SHARED_PARAMETERS]
    twice = [
        (f"{file}:{node.lineno} {node.name}", f"{other}:{again.lineno} {again.name}", sorted(names & others))
        for (file, node, names), (other, again, others) in combinations(long, 2)
        if len(names & others) > MOST_SHARED_PARAMETERS and not {file, other} <= SHARED_PARAMETERS.keys()
    ]
    assert twice == []


def parameters(arguments: ast.arguments) -> set[str]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return {one.arg for one in named} - {"self", "cls"}


def test_no_wait_is_endless() -> None:
    """What is waited for may be gone: a wait has a timeout, or is one of ``wait_for``, which looks."""
    found = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node.func)}"
        for path in FILES
        if path.relative_to(PACKAGE).parts[0] in WAITING_ROOMS
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and is_endless(node)
    ]
    assert sorted({*found}) == sorted(ENDLESS), "pass a timeout, or use wait_for()"


def is_endless(call: ast.Call) -> bool:
    """Return whether a call is a wait without a timeout; ``wait_for`` of a condition has another argument."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in WAITS or call.keywords:
        return False
    needed = 1 if call.func.attr == "wait_for" else 0
    return len(call.args) == needed and ast.unparse(call.func.value) not in ANSWER_AT_ONCE


@pytest.mark.parametrize(
    ("call", "is_refused"),
    [
        ("stage.get()", True),
        ("self._graph.result()", True),
        ("thread.join()", True),
        ("before.wait()", True),
        ("changed.wait_for(is_there)", True),
        ("thread.join(5)", False),
        ("mailbox.get(timeout=1)", False),
        ("changed.wait_for(is_there, 5)", False),
        ("found.get(key)", False),
        ("', '.join(names)", False),
    ],
)
def test_a_wait_is_endless_if_it_has_no_timeout(call: str, is_refused: bool) -> None:
    (node,) = [node for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Call)]
    assert is_endless(node) == is_refused


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports each by its name alone, and a run of several rooms would not begin."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py"))
    assert [name for name, number in names.items() if number > 1 and name not in SHARED_NAMES] == []


def test_the_rooms_in_the_documents_are_those_of_the_code() -> None:
    script = [sys.executable, str(PACKAGE.parent / "scripts" / "draw_rooms.py"), "--check"]
    done = subprocess.run(script, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_settings_in_the_documents_are_those_of_the_code() -> None:
    script = [sys.executable, str(PACKAGE.parent / "scripts" / "write_settings.py"), "--check"]
    done = subprocess.run(script, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tests_on_spark_are_where_make_looks_for_them() -> None:
    """``make`` collects no other folder for them."""
    tests = Path(__file__).parent
    line = next(
        line for line in (tests.parent / "Makefile").read_text().splitlines() if "ON_SPARK :=" in line
    )
    folders = [tests.parent / folder for folder in line.split(":=")[1].split()]
    marked = [path for path in tests.rglob("*.py") if re.search(r"mark\.spark\b", path.read_text())]
    assert marked
    assert [path for path in marked if not any(path.is_relative_to(folder) for folder in folders)] == []
