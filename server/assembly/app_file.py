"""Collects, once, what the operator's own file (`server.app`, `--app`) defines: tools, payload types, sections of
prompts, welcomes and companions."""

import traceback
from dataclasses import dataclass, field

from server.agent.place.payload_types import PayloadType
from server.agent.place.prompt import Section
from server.agent.place.scopes import path_of
from server.agent.place.welcome import Welcome
from server.companions import Companion
from server.foreign import pass_on
from server.tools.python import PythonTool
from server.tools.registry import collect, load_module
from server.tools.traits import Scope

__all__ = ["AppFile", "app_file_of"]


@dataclass(frozen=True, slots=True)
class AppFile:
    """What an operator's Python file defines. `sections` maps a name to its sections, one for each scope."""

    tools: list[PythonTool]
    sections: dict[str, tuple[Section, ...]]
    payload_types: list[PayloadType]
    welcomes: list[Welcome] = field(default_factory=list)
    companions: list[Companion] = field(default_factory=list)


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
    types, welcomes = collect(module, PayloadType), collect(module, Welcome)
    companions = collect(module, Companion)
    if not (tools or sections or types or welcomes or companions):
        raise ValueError(f"--app {path}: no function in it is decorated with @tool() or @section(NAME)")
    by_name: dict[str, tuple[Section, ...]] = {}
    for section in sections:
        others = by_name.get(section.name, ())
        if any(section.scope == other.scope for other in others):
            where = f" for the scope {path_of(section.scope)!r}" if section.scope else ""
            raise ValueError(f"--app {path}: two sections are called {section.name!r}{where}")
        by_name[section.name] = (*others, section)
    said: set[tuple[str, Scope]] = set()
    for each in welcomes:
        if (each.profile, each.place) in said:
            where = f" in {path_of(each.place)!r}" if each.place else ""
            raise ValueError(f"--app {path}: two Welcomes are for the profile {each.profile!r}{where}")
        said.add((each.profile, each.place))
    return AppFile(tools, by_name, types, welcomes, companions)
