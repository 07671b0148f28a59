"""Reads settings from the file, the environment and the flags, and records the source of each value. A later source
overrides an earlier source.

The command line calls `load_settings` once, before anything opens. `load_settings` reads one file and the given
environment, and opens no socket. The error for an invalid value or an unknown name contains the name, its source and,
if there is one, the similar name that was probably meant.

    threadcast.toml                 [server] port = 9000
    THREADCAST_SERVER__PORT=9000    any value by its path; lists and tables as JSON
    THREADCAST_CONFIG               the path of the file; `_NOT_SETTINGS` has the other names with one underscore
    REDIS_URL                       store.url
    OPENAI_API_KEY, OPENAI_BASE_URL a provider `openai`, unless the file has a provider of that name
    OPENAI_MODEL                    the default model of this provider, unless models.default is set
    --port 9000                     a flag
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from threadcast.settings import (
    BASE_URLS,
    DEMO_PROVIDER,
    OPENAI_API,
    Endpoint,
    Mcp,
    Payload,
    Profile,
    Provider,
    Secret,
    Settings,
    Tool,
)
from threadcast.settings.advice import advice_on
from threadcast.settings.models import UNNAMED_MODEL, VARIABLE
from threadcast.settings.open_file import advice_on_file
from threadcast.settings.shape import REMOVED, Wrong, check_shape, fields_of, from_text, hint_at, leaves
from threadcast.settings.shown import shown
from threadcast.store.url import shown_url
from threadcast_protocol.wire.errors import explain

__all__ = ["DEFAULT_FILE", "DEMO_MODEL", "BadSettings", "Loaded", "Value", "load_settings"]

DEFAULT_FILE = "threadcast.toml"
PREFIX = "THREADCAST_"

DEMO_MODEL = f"{DEMO_PROVIDER}/echo"
"""The model of a server without other models. It repeats the user's message, so that a new user sees a stream."""

_NOT_SETTINGS = frozenset({f"{PREFIX}{word}" for word in ("CONFIG", "PAGE", "TOKEN", "URL")})
"""Variables that are not settings: the path of the file, the build of the page, and the server and token of `threadcast
chat`. Any other unknown `THREADCAST_…` variable prevents the start."""

_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
"""Variables that Kubernetes sets in every container for a Service called `threadcast…` (documentation of Services,
"Environment variables"): `THREADCAST_SERVICE_HOST`, `THREADCAST_PORT_8000_TCP_ADDR`, and `THREADCAST_PORT=tcp://…`."""

Table: TypeAlias = dict[str, Any]  # Any: configuration before its types are checked


_T = TypeVar("_T")
_FLAGS = {"models.default": "model"}
"""Flags whose name is not the last word of their path."""

_TABLES: dict[str, type[msgspec.Struct]] = {
    "models.providers": Provider,
    "profiles": Profile,
    "endpoints": Endpoint,
    "payloads": Payload,
    "tools": Tool,
    "mcp": Mcp,
}
_SECTIONS = {field.name: field.type for field in msgspec.structs.fields(Settings)}


class BadSettings(Exception):
    """The settings are invalid. The message names the wrong value and its source."""


class Value(msgspec.Struct, frozen=True):
    """One value that differs from its default: its path in the file, the value as text, and its source."""

    path: str
    text: str
    origin: str


class Loaded(msgspec.Struct, frozen=True):
    """The settings with their sources. `origins` names the source of each value that is not a default; `notes` are
    sentences for the operator."""

    settings: Settings
    file: str | None
    origins: dict[str, str]
    notes: list[str]

    def values(self) -> list[Value]:
        """Return every value that a source set, with secrets masked, in the order of the sections."""
        return [
            Value(path, _shown(path, _at(self.settings, path)), origin) for path, origin in sorted(self.origins.items())
        ]


def load_settings(
    environ: Mapping[str, str], flags: Mapping[str, object] | None = None, file: str | None = None
) -> Loaded:
    """Read all sources. `flags` maps paths (`server.port`) to values; None means not given.

    A given `file`, or the file that THREADCAST_CONFIG names, must exist. If neither is given, threadcast.toml is read
    if it exists.

    Raises: BadSettings: a value is invalid; the message names the value.
    """
    named = file or environ.get(PREFIX + "CONFIG")
    path = Path(named or DEFAULT_FILE)
    is_read = named is not None or path.is_file()
    gathering = _Gathering(environ)
    if is_read:
        gathering.read_file(path)
    gathering.read_environment()
    gathering.read_flags(flags or {})
    gathering.add_openai()
    gathering.fetch_keys()
    gathering.choose_model()
    settings = gathering.settings()
    if is_read:
        said = [(name, _at(settings, name)) for name, origin in gathering.origins.items() if origin == str(path)]
        gathering.notes += advice_on_file(path, said)
    return Loaded(settings, str(path) if is_read else None, gathering.origins, gathering.notes)


class _Gathering:
    """Collects the table of values and the source of each value. After each step, the sections, tables and lists of the
    table are valid."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.origins: dict[str, str] = {}
        self.notes: list[str] = []
        self._environ = environ
        self._table: Table = {}

    def read_file(self, path: Path) -> None:
        try:
            self._table = tomllib.loads(path.read_text("utf-8"))
        except OSError as wrong:
            raise BadSettings(f"{path}: {wrong.strerror or wrong}") from None
        except ValueError as wrong:  # invalid TOML or UTF-8, or a number with more digits than Python reads
            raise BadSettings(f"{path}: {wrong}") from None
        except RecursionError:
            raise BadSettings(f"{path}: lists or tables are nested too deep") from None
        try:
            self._leave_out_removed(str(path))
            check_shape(self._table, Settings, "")
        except Wrong as wrong:
            raise BadSettings(f"{path}: {wrong}") from None
        self._find_files(path.parent)
        self.origins = {leaf: str(path) for leaf in leaves(self._table, Settings, "")}

    def _leave_out_removed(self, origin: str) -> None:
        for path in REMOVED:
            section, _, key = path.partition(".")
            table = self._table.get(section)
            if isinstance(table, dict) and key in table:
                del table[key]
                self._note_removed(path, origin)

    def _note_removed(self, path: str, origin: str) -> None:
        self.notes.append(f"{origin}: {path} is ignored: {REMOVED[path]}; remove the key")

    def _find_files(self, directory: Path) -> None:
        """Resolve the paths in the file relative to the file, not to the working directory."""
        tables = [
            (self._table.get("server", {}), "app"),
            (self._table.get("server", {}), "pages"),
            *((provider, "file") for provider in self._providers().values()),
        ]
        for table, key in tables:
            if isinstance(table.get(key), str) and table[key]:
                table[key] = str(directory / table[key])
        for agent in self._table.get("agents", {}).values():
            if isinstance(agent.get("workspace"), str) and agent["workspace"]:
                agent["workspace"] = str(directory / Path(agent["workspace"]).expanduser())
            if isinstance(agent.get("command"), list):  # the agent's program starts in the folder of a chat
                agent["command"] = [
                    str(directory.absolute() / part) if part.startswith(("./", "../")) else part
                    for part in agent["command"]
                ]

    def read_environment(self) -> None:
        for variable, text in sorted(self._environ.items()):
            if variable.startswith(PREFIX) and "__" in variable:
                keys = _keys_of(variable, self._table)
                if ".".join(keys) in REMOVED:
                    self._note_removed(".".join(keys), f"environment {variable}")
                    continue
                try:
                    hint = hint_at(keys)
                    value = from_text(hint, text)
                    check_shape(value, hint, ".".join(keys))
                except Wrong as wrong:
                    raise BadSettings(f"environment {variable}: {wrong}") from None
                self._put(keys, value, f"environment {variable}")
        if unread := [name for name, text in sorted(self._environ.items()) if _is_unread(name, text)]:
            raise BadSettings("; ".join(f"environment {name} is not read: {_advice(name)}" for name in unread))
        if url := self._environ.get("REDIS_URL"):
            self._put(["store", "url"], url, "environment REDIS_URL")

    def read_flags(self, flags: Mapping[str, object]) -> None:
        for dotted, value in flags.items():
            if value is not None:
                keys = dotted.split(".")
                self._put(keys, value, f"flag --{_FLAGS.get(dotted, keys[-1].replace('_', '-'))}")

    def _put(self, keys: list[str], value: object, origin: str) -> None:
        table = self._table
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = value
        self.origins[".".join(keys)] = origin

    def _providers(self) -> Table:
        providers: Table = self._table.setdefault("models", {}).setdefault("providers", {})
        return providers

    def add_openai(self) -> None:
        """Add a provider from OPENAI_*. These variables are often set for other programs, so they never override the
        file."""
        key, url, model = (self._environ.get(f"OPENAI_{name}") for name in ("API_KEY", "BASE_URL", "MODEL"))
        if model and not (key or url):
            self.notes.append("OPENAI_MODEL has no effect without OPENAI_API_KEY or OPENAI_BASE_URL")
        if "openai" in self._providers() or not (key or url):
            return
        path_here = ["models", "providers", "openai"]
        self._providers()["openai"] = {}
        if url:
            self._put([*path_here, "base_url"], url, "environment OPENAI_BASE_URL")
        if key:
            self._put([*path_here, "api_key"], key, "environment OPENAI_API_KEY")
        if model:
            # OpenAI's own models accept images; a local model may not.
            sees = {} if url else {"supports_images": True, "supports_files": True}
            self._put([*path_here, "models"], [{"name": model, **sees}], "environment OPENAI_MODEL")
            if not self._table["models"].get("default"):
                self._put(["models", "default"], f"openai/{model}", "environment OPENAI_MODEL")

    def fetch_keys(self) -> None:
        """Read the keys of providers with `api_key_env`."""
        for name, provider in self._providers().items():
            variable = provider.get("api_key_env")
            if not isinstance(variable, str) or not VARIABLE.fullmatch(variable):  # a later error names the key's path
                continue
            if provider.get("api_key"):
                raise BadSettings(
                    f"models.providers.{name}: both api_key and api_key_env = {variable!r} are set; keep one of them"
                )
            if self._environ.get(variable):
                path_here = ["models", "providers", name, "api_key"]
                self._put(path_here, self._environ[variable], f"environment {variable}")
            else:
                self.notes.append(f"provider {name} has no key: {variable} (its api_key_env) is not set")

    def choose_model(self) -> None:
        """Choose the default model when the settings name none (DESIGN §10)."""
        providers = self._providers()
        if self._table["models"].get("default"):
            return
        for name, provider in providers.items():
            if provider.get("models"):
                first = provider["models"][0].get("name")
                self._put(["models", "default"], f"{name}/{first}", f"the first model of provider {name}")
                return
        for name, provider in providers.items():
            if provider.get("base_url", OPENAI_API) != OPENAI_API and provider.get("kind") not in BASE_URLS:
                self._put(["models", "default"], f"{name}/{UNNAMED_MODEL}", f"the first model that {name} lists")
                return
        demo, real = self._table["models"].get("demo"), [n for n, p in providers.items() if p.get("kind") != "script"]
        if demo or (demo is None and not real):
            self._table["models"]["default"] = DEMO_MODEL
        if providers or demo is False:  # OpenAI lists many models, which all cost money, so the operator must choose
            answer = f"chats use {DEMO_MODEL}" if self._table["models"].get("default") else "each chat must choose one"
            self.notes.append(
                f"no model of {', '.join(providers) or 'any provider'} is chosen, so {answer}; "
                "choose one by OPENAI_MODEL, models.default or --model"
            )

    def settings(self) -> Settings:
        for name, hint in _TABLES.items():
            section, _, key = name.rpartition(".")
            entries = self._table.get(section, {}).get(key, {}) if section else self._table.get(key, {})
            for entry, value in entries.items():  # one entry at a time, because msgspec's error does not name the entry
                self._convert(value, hint, f"{name}.{entry}")
        return self._convert(self._table, Settings, "")

    def _convert(self, value: object, hint: type[_T], path: str) -> _T:
        try:
            return msgspec.convert(value, hint, dec_hook=_to_secret)
        except msgspec.ValidationError as wrong:
            text, pointer = explain(wrong)
            text = advice_on(text)
        path_here = ".".join(step for step in (path, *pointer.split("/")[1:]) if step)
        said_by = {
            self.origins[known] for known in self.origins if path_here and f"{known}.".startswith(f"{path_here}.")
        }
        said_by |= {self.origins[known] for known in self.origins if path_here.startswith(f"{known}.")}
        raise BadSettings(": ".join(part for part in (", ".join(sorted(said_by)), path_here, text) if part))


def _to_secret(wanted: type, value: object) -> Secret:
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


# Reading the environment.


def _keys_of(variable: str, table: Table) -> list[str]:
    """Return the path that a variable names; existing tables match case-insensitively, with `_` for `-`."""
    keys: list[str] = []
    path_here: object = table
    for word in variable.removeprefix(PREFIX).lower().split("__"):
        names = path_here if isinstance(path_here, dict) else {}
        key = next((name for name in names if name.lower().replace("-", "_") == word), word)
        path_here = names.get(key)
        keys.append(key)
    return keys


def _is_unread(variable: str, text: str) -> bool:
    if not variable.startswith(PREFIX) or "__" in variable or variable in _NOT_SETTINGS:
        return False
    return not (_SERVICE_LINK.search(variable) or (variable.endswith("_PORT") and "://" in text))


def _advice(variable: str) -> str:
    """Return advice for an unknown variable."""
    word = variable.removeprefix(PREFIX).lower()
    section, _, key = word.partition("_")
    known = {
        f"{name}_{each}": f"{PREFIX}{name}__{each}".upper() for name in _SECTIONS for each in _keys_of_section(name)
    }
    if word in _SECTIONS:
        example = f"{variable}__NAME__KEY" if not _keys_of_section(word) else f"{variable}__KEY"
        return f"{word} is a section and has no value of its own; write {example}, or use {DEFAULT_FILE}"
    if near := difflib.get_close_matches(word, known, n=1, cutoff=0.8):
        return f"write {known[near[0]]}"
    if section in _SECTIONS and key and not _keys_of_section(section):
        return f"write {PREFIX}{section.upper()}__NAME__KEY, with two underscores between the words of a path"
    return f"write a setting as {PREFIX}SECTION__KEY, as in {DEFAULT_FILE}; unset a variable that is not a setting"


def _keys_of_section(name: str) -> list[str]:
    """Return the keys of a section of the file; an empty list for a section with free names as keys."""
    return list(fields_of(_SECTIONS[name]) or {})


# Display.


def _at(settings: Settings, path: str) -> object:
    """Return the value at a path. A key of a table may contain dots, such as the place "v1.2"."""
    value: object = settings
    rest = f"{path}."
    while rest:
        if isinstance(value, dict):
            key = max((each for each in value if rest.startswith(f"{each}.")), key=len)
            value = value[key]
        else:
            key = rest.partition(".")[0]
            value = getattr(value, key)
        rest = rest[len(key) + 1 :]
    return value


def _shown(path: str, value: object) -> str:
    if isinstance(value, Secret):
        return shown_url(value.reveal()) if path == "store.url" else "***"
    text = shown(value)
    return text if len(text) <= 100 else text[:99] + "…"
