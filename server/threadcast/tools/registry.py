"""The tools of one worker by name, from all sources.

The mapping is sorted by name, so that a model sees the same list after every restart and a provider's prompt cache
stays valid. Profiles choose the tools of a chat. Two tools with the same name prevent the start (TOOL-1), since it
would be unclear which tool ran.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from threadcast.providers.base import ToolSpec
from threadcast.tools.base import Tool

__all__ = ["Tools", "collect", "load_module"]

_T = TypeVar("_T")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The function names that OpenAI and Anthropic accept."""


class Tools(Mapping[str, Tool]):
    """The mapping of all tools by name.

    Raises:
        ValueError: two tools have the same name, providers refuse a name, or a scope is invalid.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        by_name: dict[str, Tool] = {}
        for tool in tools:
            if not _NAME.fullmatch(tool.name):
                raise ValueError(f"{tool!r}: a tool's name is 1 to 64 characters of A-Z a-z 0-9 _ -")
            for scope in tool.traits.scopes:
                if not _is_scope(scope):
                    raise ValueError(f"{tool!r}: a scope is 1 to 3 names, ('reports', 'articles'); not {scope!r}")
            other = by_name.setdefault(tool.name, tool)
            if other is not tool:
                raise ValueError(f"two tools are called {tool.name!r}: {other!r} and {tool!r}")
        self._by_name = dict(sorted(by_name.items()))

    def __getitem__(self, name: str) -> Tool:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def specs(self) -> list[ToolSpec]:
        """Return the descriptions of the tools for a model."""
        return [ToolSpec(tool.name, tool.description, tool.input_schema) for tool in self.values()]


def _is_scope(scope: object) -> bool:
    """Return whether the value is a scope. Scopes are checked at start, because a tool with an invalid scope would
    never be offered."""
    return isinstance(scope, tuple) and 1 <= len(scope) <= 3 and all(name and "/" not in name for name in scope)


def load_module(path: str | Path) -> ModuleType:
    """Run a Python file (`serve --app my_tools.py`).

    The file's directory is added to `sys.path`, as with `python my_tools.py`, so that the file can import its
    neighbours. Exceptions of the file's code pass through.

    Raises:
        ValueError: the file does not exist.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise ValueError(f"--app {path}: no such file")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    name = f"threadcast_app_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"--app {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look up their module there
    spec.loader.exec_module(module)
    return module


def collect(module: ModuleType, kind: type[_T]) -> list[_T]:
    """Return the objects of a type in a module, such as its tools, in order and without repetition."""
    found: list[_T] = []
    for value in vars(module).values():
        if isinstance(value, kind) and not any(value is other for other in found):
            found.append(value)
    return found
