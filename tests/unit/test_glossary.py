"""One word for each thing: no identifier uses a name that the glossary in CONTRIBUTING.md has replaced.

The test reads identifiers and file names, never strings or comments, so it ignores tags on the wire, Redis keys, metric
names and ordinary English.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.server import ROOT

FOLDERS = ("protocol", "client", "server", "bench", "examples", "scripts", "tests", "web")

NOT_OURS = frozenset({"node_modules", "dist", "build", "static", ".venv"})
"""Directories of installed or built files."""


class Old(NamedTuple):
    """An old name. `pattern` matches one part of an identifier (`chat_ledger` has the parts chat and ledger), or the
    whole identifier with `is_whole`; `where` begins the paths in which it is refused."""

    pattern: str
    instead: str
    where: tuple[str, ...] = ("",)
    is_whole: bool = False


PYTHON = ("protocol/", "client/", "server/")

OLD = [
    Old("furniture|furnish", "Components"),
    Old("workplace", "WorkerContext"),
    Old("seats?|seated|unseat", "ProcessSlot"),
    Old("doors?", "StartupGate", ("server/threadcast/http/", "server/threadcast/process/", "tests/unit/test_startup")),
    Old("vaults?", "CredentialCache"),
    Old("postman", "OutboxSender"),
    Old(
        "_?[Ll]etters?", "OutboundMessage", ("server/threadcast/actor/", "server/threadcast/chat/", "web/client/"), True
    ),
    Old("mails?", "OutboundMessage, or inbox_signals", PYTHON),
    Old("whisper(s|ed|ing)?", "publish"),
    Old("overhear[ds]?", "subscribe"),
    Old("patience", "RetryPolicy"),
    Old("upkeep", "CheckpointPolicy"),
    Old("rhythms?", "LeaseTimings"),
    Old("Turn|TurnOver|_?turn", "RunTask in the actor; Allowance in quotas", ("server/threadcast/actor/",), True),
    Old("Turn|TurnSpent|spend_turn|return_turn|RedisTurns", "Allowance", PYTHON, True),
    Old("end_of_turn", "end_of_exchange", is_whole=True),
    Old("ledgers?", "EntryBuilder"),
    Old("_?places|Places|_?PLACES|parse_places", "stream_ids, stream_positions or scopes", is_whole=True),
    Old("_?[Pp]lace|place_word", "stream_position, scope, cursor or span", PYTHON, True),
    Old("_?past|PAST", "history", is_whole=True),
    Old("light|begin_lightly", "startup imports", ("server/threadcast/http/", "server/threadcast/cli"), True),
    Old("outlets?", "direct_send"),
    Old("_?[Nn]ews|parse_notice", "LogMessage", is_whole=True),
    Old(
        "_?[Nn]otices?", "LogMessage", ("protocol/", "server/", "tests/unit/", "tests/integration/", "tests/sim/"), True
    ),
    Old("shelf|shelves", "BlobCollector, or list_owner"),
    Old("houses?", "Harness"),
    Old("pace", "append_pace (process) or append_group (actor)", PYTHON, True),
    Old("Pace", "AppendGroup", PYTHON, True),
]
"""Old names that are also ordinary English words are refused only in the files where the old name was used."""

EXEMPT = {("server/threadcast/cli.py", "seat"): "argparse makes it of the option `--seat`, which stays"}
"""Exceptions: names that are kept, each with the reason. Names of the wire and of Redis are strings, or `name=` of a
field, so this table needs no row for them."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_SCRIPT = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|\bdata-[\w-]+"
    r"|(?<=[\w\"}/])>[^<>{}=;()]*[<{]|([A-Za-z_$][\w$]*)",
    re.S,
)
"""Identifiers of TypeScript; comments, strings, `data-` attributes and the text between JSX tags are skipped."""


def python_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each identifier."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and not token.string.startswith("test_"):  # names of tests are sentences
            yield token.start[0], token.string


def script_names(source: str) -> Iterator[tuple[int, str]]:
    for found in _SCRIPT.finditer(source):
        if found[1]:
            yield source.count("\n", 0, found.start()) + 1, found[1]


def old_names(path: str, names: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield `path:line: name; use …` for each old name."""
    rules = [old for old in OLD if path.startswith(old.where)]
    whole = [(re.compile(old.pattern), old.instead) for old in rules if old.is_whole]
    parts = [(re.compile(old.pattern), old.instead) for old in rules if not old.is_whole]
    verdicts: dict[str, str | None] = {}
    for line, name in names:
        if name not in verdicts:
            wrong = [instead for pattern, instead in whole if pattern.fullmatch(name)]
            wrong += [
                instead
                for part in _PARTS.findall(name)
                for pattern, instead in parts
                if pattern.fullmatch(part.lower())
            ]
            verdicts[name] = wrong[0] if wrong and (path, name) not in EXEMPT else None
        if (instead := verdicts[name]) is not None:
            yield f"{path}:{line}: {name}; use {instead}"


def sources(folder: str) -> Iterator[Path]:
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".ts", ".tsx") and not NOT_OURS.intersection(path.relative_to(ROOT).parts):
            yield path


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_identifier_uses_an_old_name(folder: str) -> None:
    found: list[str] = []
    for path in sources(folder):
        name, names = str(path.relative_to(ROOT)), python_names if path.suffix == ".py" else script_names
        stem = iter([(0, path.name.split(".")[0].removeprefix("test_"))])
        found += [*old_names(name, stem), *old_names(name, names(path.read_text()))]
    assert not found, "names that the glossary has replaced:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("server/threadcast/chat/new.py", "def carry_out(ledger): ..."),
        ("server/threadcast/actor/new.py", "self._turn = Turn()"),
        ("server/threadcast/fanout/new.py", "places = {}"),
        ("tests/unit/new.py", "async with actor_house() as it: pass"),
        ("web/client/src/new.ts", "const wait = this.patience.pauseMs;"),
        ("web/client/src/new.tsx", "export class MyPostman {}"),
    ],
)
def test_an_old_name_is_found(path: str, source: str) -> None:
    names = python_names if path.endswith(".py") else script_names
    assert [*old_names(path, names(source))]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("server/threadcast/store/new.py", 'CHANNEL = b"whisper:"  # the ledger of old'),
        ("server/threadcast/store/new.py", "async def dead_letter(self): ..."),
        ("server/threadcast/api/new.py", "return replace(turns_per_hour=1)"),
        ("web/app/src/new.tsx", 'const a = <p title="the shelf">A house by the sea</p>; // patience'),
    ],
)
def test_strings_comments_and_other_words_are_free(path: str, source: str) -> None:
    names = python_names if path.endswith(".py") else script_names
    assert not [*old_names(path, names(source))]


def test_exemptions_are_needed() -> None:
    for path, name in EXEMPT:
        assert name in [found for _, found in python_names((ROOT / path).read_text())], f"{path} has no {name}"


def test_the_glossary_explains_the_new_names() -> None:
    glossary = (ROOT / "CONTRIBUTING.md").read_text().partition("## Glossary")[2].partition("\n## ")[0]
    instead = {word for old in OLD for word in re.findall(r"\b[A-Z]\w*[a-z][A-Z]\w*", old.instead)}
    assert not [word for word in sorted(instead) if f"`{word}`" not in glossary]
