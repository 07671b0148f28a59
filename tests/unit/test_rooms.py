"""Checks which package may import which: the arrows of docs/design.md, read from the source.

A test names each import that crosses a border, with its file and line. The tests also check imports inside functions
and under TYPE_CHECKING.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.fold.state import ChatState

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT / "protocol/threadcast_protocol"
CLIENT = ROOT / "client/threadcast_client"
SERVER = ROOT / "server/threadcast"

MAY_IMPORT = {
    PROTOCOL: {"threadcast_protocol", "msgspec"},
    CLIENT: {"threadcast_client", "threadcast_protocol", "msgspec", "anyio", "httpx2"},
}
"""The packages that a distribution may import besides the standard library."""

NETWORK_FILES = {"wire.py", "client.py"}
"""The files of the client that may import httpx2: one sends requests, the other names the types of its arguments."""

ARROWS = {
    "__init__": "companions custom_agents profiles tools",
    "actor": "agent_loop base chat profiles settings store tools",
    "agent_loop": "base chat custom_agents profiles providers settings tools",
    "agents": "base custom_agents providers tools",
    "api": "base chat credentials fanout http log_tail profiles settings store",
    "api/schema": "api chat routes",
    "base": "",
    "chat": "",
    "cli": "base console http settings",
    "companions": "base",
    "compat": "api base chat fanout http profiles settings store",
    "console": "api base process providers settings store tools wiring",
    "credentials": "store",
    "custom_agents": "base providers tools",
    "fanout": "base chat log_tail settings store",
    "http": "base settings store",
    "log_tail": "chat store",
    "process": "base http settings store",
    "profiles": "base chat providers settings tools",
    "providers": "base chat settings",
    "routes": "api compat",
    "settings": "chat store",
    "store": "base chat",
    "tools": "base chat providers settings",
    "wiring": (
        "actor agent_loop agents api base chat companions credentials custom_agents fanout http process profiles"
        " providers routes settings store tools"
    ),
}
"""The rooms that each room of the server imports. `api/schema` makes the schema of all routes, so it is a room of its
own."""

ONLY_IN = {
    "anthropic": "providers",
    "genai_prices": "providers",
    "openai": "providers",
    "redis": "store",
    "uvicorn": "http",
}
"""Libraries that one room alone imports."""

WHOLE_STORE = {
    "actor/worker_context.py",
    "actor/writer.py",
    "api/edge.py",
    "wiring/values.py",
    "wiring/web_half.py",
    "wiring/worker_half.py",
}
PORT_MAX_METHODS = 8

IMPLEMENTATIONS = ("redis", "topology", "embedded", "memory")
"""The packages of `store` that implement its ports."""

NAME_AN_IMPLEMENTATION = {"console", "process", "wiring"}
"""The rooms that open a store, or that inspect it for an operator."""


@cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """Return the full names of the modules that a file imports, each with its line."""
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name}:{node.lineno} imports by a relative name"
            yield node.module or "", node.lineno


def top(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("package", MAY_IMPORT, ids=lambda path: path.name)
def test_a_package_imports_what_it_may_and_nothing_else(package: Path) -> None:
    files = list(package.rglob("*.py"))
    assert files
    for path in files:
        for module, line in imports_of(path):
            is_allowed = top(module) in MAY_IMPORT[package] or top(module) in sys.stdlib_module_names
            assert is_allowed, f"{path.relative_to(ROOT)}:{line} imports {module}"


def test_the_protocol_uses_no_clock_no_network_and_no_tasks() -> None:
    forbidden = {"asyncio", "socket", "ssl", "http", "urllib", "threading", "subprocess", "time", "random"}
    for path in PROTOCOL.rglob("*.py"):
        for module, line in imports_of(path):
            assert top(module) not in forbidden, f"{path.relative_to(ROOT)}:{line} imports {module}"


def test_the_public_state_holds_what_a_snapshot_shows_and_a_place_in_the_events() -> None:
    """The server extends the state in `threadcast.chat.owner_state`; a client has no field that only a server fills."""
    shown = {"thread", "runtime", "background_agents", "payloads", "recent_acks"}
    assert {*ChatState.__struct_fields__} == shown | {"chat_id", "epoch", "position", "nodes", "path", "draft"}
    assert {*OwnerState.__struct_fields__} - {*ChatState.__struct_fields__} == {"head", "version", "lives", "private"}


def test_importing_the_client_loads_no_private_fact_and_nothing_else_of_the_server() -> None:
    code = """if True:
        import sys
        import threadcast_client
        for name in threadcast_client.__all__:
            getattr(threadcast_client, name)
        print(*sorted(sys.modules), sep="\\n")
    """
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert "threadcast_protocol.fold.reducer" in loaded
    private = {"facts", "fact_fold", "relations", "entries", "entry_fold", "owner_state"}
    wrong = [name for name in loaded if top(name) == "threadcast" or name.rpartition(".")[2] in private]
    assert wrong == []


def test_two_files_of_the_client_import_the_network_library() -> None:
    found = {path.name for path in CLIENT.rglob("*.py") for module, _ in imports_of(path) if top(module) == "httpx2"}
    assert found == NETWORK_FILES


def room_of(path: Path) -> str:
    return _room(path.relative_to(SERVER).with_suffix("").parts)


def _room(parts: Sequence[str]) -> str:
    return "/".join(parts[:2]) if tuple(parts[:2]) == ("api", "schema") else parts[0]


def test_the_server_uses_the_client_in_its_terminal_and_in_what_users_import() -> None:
    for path in SERVER.rglob("*.py"):
        if "threadcast_client" in {top(module) for module, _ in imports_of(path)}:
            assert room_of(path) in ("console", "__init__"), f"{path.relative_to(ROOT)} imports threadcast_client"


def test_every_room_is_in_the_table() -> None:
    assert {room_of(path) for path in SERVER.rglob("*.py")} == {*ARROWS}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_the_rooms_that_its_row_names(room: str) -> None:
    used = set()
    for path in SERVER.rglob("*.py"):
        for module, line in imports_of(path):
            if room_of(path) != room or top(module) != "threadcast" or "." not in module:
                continue
            other = _room(module.split(".")[1:])
            assert other in {room, *ARROWS[room].split()}, f"{path.relative_to(ROOT)}:{line} imports {module}"
            used.add(other)
    assert used >= {*ARROWS[room].split()}, "the row names a room that is not imported any more"


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    assert circle_in({room: set(others.split()) for room, others in ARROWS.items()}) == []


def test_files_do_not_import_each_other_in_a_circle() -> None:
    """The rule includes imports inside functions and under TYPE_CHECKING."""
    assert circle_in(imported_modules()) == []


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def imported_modules() -> dict[str, set[str]]:
    """The modules of the three packages that each of their modules imports."""
    modules: dict[str, Path] = {}
    for package in (PROTOCOL, CLIENT, SERVER):
        for path in package.rglob("*.py"):
            name = ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
            modules[name.removesuffix(".__init__")] = path
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & {*modules}
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                whole = (f"{node.module}.{alias.name}" for alias in node.names)
                graph[name] |= {each if each in modules else node.module for each in whole}
    return graph


def test_each_part_takes_the_ports_of_the_store_that_it_needs() -> None:
    """Only the composition root, and code that hands the store on to the parts, names the whole store."""
    found = set()
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "threadcast.store.ports":
                found |= {path.relative_to(SERVER).as_posix() for alias in node.names if alias.name == "Store"}
    assert found == WHOLE_STORE


def test_an_implementation_of_the_store_is_named_where_a_store_is_opened() -> None:
    prefixes = tuple(f"threadcast.store.{name}" for name in IMPLEMENTATIONS)
    for path in SERVER.rglob("*.py"):
        if room_of(path) not in {"store", *NAME_AN_IMPLEMENTATION}:
            for module, line in imports_of(path):
                assert not module.startswith(prefixes), f"{path.relative_to(ROOT)}:{line} imports {module}"


def test_the_ports_of_the_store_know_none_of_its_implementations() -> None:
    for path in SERVER.glob("store/ports/*.py"):
        for module, line in imports_of(path):
            is_ours = top(module) == "threadcast" and not module.startswith(
                ("threadcast.chat", "threadcast.store.ports")
            )
            assert not is_ours, f"{path.relative_to(ROOT)}:{line} imports {module}"


def test_a_port_of_the_store_is_small() -> None:
    for path in SERVER.glob("store/ports/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                assert len(methods) <= PORT_MAX_METHODS, f"{path.name}: {node.name} has {len(methods)} methods"


def test_a_library_is_imported_in_its_room_alone() -> None:
    for path in SERVER.rglob("*.py"):
        for module, line in imports_of(path):
            room = ONLY_IN.get(top(module), room_of(path))
            assert room_of(path) == room, f"{path.relative_to(ROOT)}:{line} imports {module}"
