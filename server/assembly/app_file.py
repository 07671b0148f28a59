"""The operator's own file (`server.app`, `--app`): its tools, payload types and sections of prompts, collected once."""

import traceback
from dataclasses import dataclass

from server.agent.place.payload_types import PayloadType
from server.agent.place.prompt import Section
from server.agent.place.scopes import path_of
from server.foreign import pass_on
from server.tools.python import PythonTool
from server.tools.registry import collect, load_module

__all__ = ["AppFile", "app_file_of"]


@dataclass(frozen=True, slots=True)
class AppFile:
    """What an operator's Python file defines. `sections` maps a name to its sections, one for each scope."""

    tools: list[PythonTool]
    sections: dict[str, tuple[Section, ...]]
    payload_types: list[PayloadType]


def app_file_of(path: str) -> AppFile:
    """What the file at `path` defines; nothing when there is none ('').

    Raises:
        ValueError: what is wrong with it, in Python's own words and without our frames.
    """
    if not path:
        return AppFile([], {}, [])
    try:
        module = load_module(path)
    except (ValueError, KeyboardInterrupt):
        raise  # already a sentence; Ctrl-C while the file is read
    except BaseException as wrong:  # the boundary of a foreign file: it may raise anything
        pass_on(wrong)
        raise ValueError(f"--app {path}: {''.join(traceback.format_exception_only(wrong)).strip()}") from wrong
    tools, sections = collect(module, PythonTool), collect(module, Section)
    types = collect(module, PayloadType)
    if not tools and not sections and not types:
        raise ValueError(f"--app {path}: no function in it is decorated with @tool() or @section(NAME)")
    by_name: dict[str, tuple[Section, ...]] = {}
    for section in sections:
        others = by_name.get(section.name, ())
        if any(section.scope == other.scope for other in others):
            where = f" for the scope {path_of(section.scope)!r}" if section.scope else ""
            raise ValueError(f"--app {path}: two sections are called {section.name!r}{where}")
        by_name[section.name] = (*others, section)
    return AppFile(tools, by_name, types)
