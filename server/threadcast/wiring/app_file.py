"""Collects the agents, tools, payload types, sections of prompts, welcomes and companions that the operator's file
(`server.app`, `--app`) defines."""

import traceback
from dataclasses import dataclass, field

from threadcast.base.boundary import pass_on
from threadcast.chat.scopes import Scope, path_of
from threadcast.companions import Companion
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.serving import served
from threadcast.profiles.payload_types import PayloadType
from threadcast.profiles.prompt import Section
from threadcast.profiles.welcome import Welcome
from threadcast.tools.base import Tool
from threadcast.tools.python import PythonTool
from threadcast.tools.registry import collect, load_module

__all__ = ["AppFile", "app_file_of"]


@dataclass(frozen=True, slots=True)
class AppFile:
    """The definitions of an operator's Python file. `sections` maps a name to its sections, one for each scope."""

    tools: list[Tool]
    sections: dict[str, tuple[Section, ...]]
    payload_types: list[PayloadType]
    welcomes: list[Welcome] = field(default_factory=list)
    companions: list[Companion] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)


def app_file_of(path: str) -> AppFile:
    """Return the definitions of the file at `path`; no definitions if `path` is ''.

    Raises:
        ValueError: the file cannot be used; the message is Python's own message, without frames of the server.
    """
    if not path:
        return AppFile([], {}, [])
    try:
        with served() as of_frameworks:
            module = load_module(path)
    except (ValueError, KeyboardInterrupt):
        raise  # already a sentence, or Ctrl-C while the file is read
    except BaseException as wrong:  # the boundary of a foreign file, which may raise any exception
        pass_on(wrong)
        raise ValueError(f"--app {path}: {''.join(traceback.format_exception_only(wrong)).strip()}") from wrong
    tools: list[Tool] = [*collect(module, PythonTool)]
    sections = collect(module, Section)
    types, welcomes = collect(module, PayloadType), collect(module, Welcome)
    companions, agents = collect(module, Companion), collect(module, Agent)
    agents += [each for each in of_frameworks if not any(each is other for other in agents)]
    if not (tools or sections or types or welcomes or companions or agents):
        raise ValueError(f"--app {path}: no function in it is decorated with @agent(NAME), @tool() or @section(NAME)")
    for own in (each for agent in agents for each in agent.own_tools):
        if not any(own is other for other in tools):  # two agents may share a tool
            tools.append(own)
    agent_names: set[str] = set()
    for each in agents:
        if each.name.casefold() in agent_names:
            raise ValueError(f"--app {path}: two agents are called {each.name!r} (case does not matter)")
        agent_names.add(each.name.casefold())
    by_name: dict[str, tuple[Section, ...]] = {}
    for section in sections:
        others = by_name.get(section.name, ())
        if any(section.scope == other.scope for other in others):
            where = f" for the scope {path_of(section.scope)!r}" if section.scope else ""
            raise ValueError(f"--app {path}: two sections are called {section.name!r}{where}")
        by_name[section.name] = (*others, section)
    said: set[tuple[str, Scope]] = set()
    for welcome in welcomes:
        if (welcome.profile, welcome.parsed_scope) in said:
            where = f" in {path_of(welcome.parsed_scope)!r}" if welcome.parsed_scope else ""
            raise ValueError(f"--app {path}: two Welcomes are for the profile {welcome.profile!r}{where}")
        said.add((welcome.profile, welcome.parsed_scope))
    return AppFile(tools, by_name, types, welcomes, companions, agents)
