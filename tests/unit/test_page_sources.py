"""The page uses only the public API: its sources name public endpoints and leave requests to the client.

The sources are read as text, without a compiler: paths are in quotes or in templates, whose placeholders count as one
segment each.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "web" / "app" / "src"
OPENAPI = ROOT / "protocol/schema/openapi.json"

ASKS = re.compile(r"\bfetch\s*\(|\bXMLHttpRequest\b|\bEventSource\b|\bWebSocket\b|\bsendBeacon\b")
UPLOADER = "composer/uploading.ts"
"""The only file outside the client that makes requests, because only XMLHttpRequest reports the progress of an
upload."""

WRITES_HTML = re.compile(r"innerHTML|dangerouslySetInnerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc")
HTML_WRITERS = {
    "diagram/harmless.ts",  # wraps the setters, so that Mermaid's HTML is changed before it is set
    "thread/markdown/entities.ts",  # a single character reference, in an element that cannot have child elements
    "thread/markdown/markdown.tsx",  # code that highlight.js has coloured and escaped
}
"""Answers are drawn as elements (docs/decisions/0030-answers-are-drawn-without-html.md)."""

RUNS_TEXT = re.compile(r"\beval\s*\(|\bnew Function\b|javascript:")

WANTS_HTTPS = re.compile(r"\bcrypto\.(randomUUID|subtle)\b")
"""APIs that are missing in pages loaded over plain HTTP from another machine (https://www.w3.org/TR/secure-contexts/),
such as on a phone in the same network."""

KEEPS = re.compile(r"\b(?:localStorage|sessionStorage|indexedDB)\b|document\.cookie")
KEEPER = "state/storage.ts"
"""Browser storage, whose getters throw if the browser blocks it; its data belongs to a person."""

LINKS = ("/", "/c/{}", "/favicon.svg", "/diagram")

COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)
PATH = re.compile(
    r"""(?P<before>[^\n]{0,80}?)
        (?:"(?P<plain>/[^"\n]*)"|'(?P<single>/[^'\n]*)'
          |`(?P<template>/(?:[^`$]|\$(?!\{)|\$\{(?:[^{}`]|\{[^{}]*\})*\})*)`)""",
    re.VERBOSE,
)
METHOD = re.compile(r"""\(\s*"(GET|POST|DELETE|PUT|PATCH)",\s*$""")


A_PATH = re.compile(r"/[\w./{}%-]*")


class Named(NamedTuple):
    """A path in a source, with `{}` for each placeholder, and the `method` that precedes the path, if any."""

    path: str
    method: str | None


def sources() -> Iterator[tuple[str, str]]:
    """Return each file's name and its text without comments."""
    for file in sorted(SOURCES.rglob("*.ts*")):
        yield file.relative_to(SOURCES).as_posix(), COMMENT.sub("", file.read_text("utf-8"))


def paths_in(text: str) -> Iterator[Named]:
    for found in PATH.finditer(text):
        quoted = found["plain"] or found["single"] or re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}", "{}", found["template"])
        path = quoted.partition("?")[0]
        is_looked_at = found["before"].endswith("startsWith(")  # a received address, which is not requested
        if A_PATH.fullmatch(path) and not is_looked_at:
            method = METHOD.search(found["before"])
            yield Named(path, method and method[1])


def test_paths_are_found_however_they_are_written() -> None:
    text = """
        const names = await ask<Caps>("GET", "/v1/caps").then((found) => found.split('/x y'));
        client.get(`/v1/chats/${chat.peek()?.id ?? ""}/blobs/${encodeURIComponent(hash)}?width=${size}`);
        if (url.startsWith("/v1/")) text.replace(/`/g, "'");
    """
    assert list(paths_in(text)) == [("/v1/caps", "GET"), ("/v1/chats/{}/blobs/{}", None)]


def test_every_path_in_the_page_is_a_documented_endpoint_or_a_link_into_the_page() -> None:
    documented = json.loads(OPENAPI.read_text())["paths"]
    endpoints = {re.sub(r"\{\w+\}", "{}", path): operations for path, operations in documented.items()}
    named = [(file, *each) for file, text in sources() for each in paths_in(text)]
    assert not [each for each in named if each[1] not in endpoints and each[1] not in LINKS]
    assert not [each for each in named if each[2] and each[2].lower() not in endpoints[each[1]]]


def test_the_page_asks_by_the_client_alone_and_uploads_by_the_one_uploader() -> None:
    assert {file for file, text in sources() if ASKS.search(text)} <= {UPLOADER}


def test_nothing_becomes_html_but_in_one_place_which_purifies_it_and_nothing_is_run() -> None:
    writers = {file for file, text in sources() if WRITES_HTML.search(text)}
    assert writers <= HTML_WRITERS, writers - HTML_WRITERS
    assert not [file for file, text in sources() if RUNS_TEXT.search(text)]


def test_the_page_keeps_things_in_one_place_which_survives_a_browser_that_refuses() -> None:
    keepers = {file for file, text in sources() if KEEPS.search(text)}
    assert keepers <= {KEEPER}


def test_the_page_works_over_plain_http_from_another_machine() -> None:
    clients = ((file.name, file.read_text("utf-8")) for file in (ROOT / "web" / "client" / "src").glob("*.ts"))
    found = [file for file, text in (*sources(), *clients) if WANTS_HTTPS.search(COMMENT.sub("", text))]
    assert not found
