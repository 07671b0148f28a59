"""Runs the page of the example `help`, and checks each of its claims against the requests that the model received."""

import json
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.examples.console import play
from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, serve_fake_openai, text
from tests.integration.oneshot_client import Shown, ask
from tests.ports import free_port
from tests.support.server import ROOT, Process, start
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

HELP = ROOT / "examples" / "help"

PUBMED = {"current_page": "reports", "active_tab": "articles", "subtab": "pubmed"}


@pytest.fixture
def library_port() -> int:
    return free_port()


async def test_every_line_of_the_page_is_printed(tmp_path: Path, library_port: int) -> None:
    """The example runs in a copy whose library has another port, because 8001 may be in use."""
    here = Path(shutil.copytree(HELP, tmp_path / "help"))
    config = here / "threadcast.toml"
    config.write_text(config.read_text("utf-8").replace(":8001/", f":{library_port}/"), "utf-8")
    library = here / "library.py"
    library.write_text(library.read_text("utf-8").replace("PORT = 8001", f"PORT = {library_port}"), "utf-8")
    page = here / "README.md"
    page.write_text(page.read_text("utf-8").replace("examples/help/", f"{here}/"), "utf-8")
    await play(page, tmp_path)


class Desk:
    """The example with a model that records its requests."""

    def __init__(self, server: Process, model: FakeOpenAI) -> None:
        self.server = server
        self.model = model

    async def say(
        self, *replies: Reply, context: JsonObject, who: str = "reader", chat_id: str = "", card: str = ""
    ) -> Shown:
        self.model.replies = list(replies)
        body = {"message": "hi", "context": context, "conversation_id": chat_id}
        lent = {"Threadcast-Forward-Authorization": card} if card else {}
        return await ask(self.server.url, "/api/chat/stream", body, {**bearer(who), **lent})

    def asked(self) -> "Asked":
        return Asked(self.model.asked[-1].body)


class Asked:
    """A request that the model received."""

    def __init__(self, body: JsonObject) -> None:
        self.tools = {tool["function"]["name"] for tool in body.get("tools", [])}
        first, *rest = body["messages"]
        self.prompt = str(first["content"])
        self.rest = json.dumps(rest)


def bearer(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {who}-token"}


@asynccontextmanager
async def desk(tmp_path: Path, **environment: str) -> AsyncIterator[Desk]:
    with serve_fake_openai() as model:
        openai = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-x", "OPENAI_MODEL": "tiny"}
        chosen = {**openai, "THREADCAST_MODELS__DEFAULT": "openai/tiny", **environment}
        arguments = ["serve", "--config", str(HELP / "threadcast.toml"), "--port", "0", "--memory"]
        with start(*arguments, log=tmp_path / "log", environment=chosen) as server:
            yield Desk(await server.ready(), model)


def says(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


def calls(name: str, **arguments: object) -> Reply:
    call = {"index": 0, "id": f"call_{name}", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return Reply([chunk(delta={"tool_calls": [call]}), chunk(finish_reason="tool_calls"), DONE])


def payload_of(shown: Shown) -> Any:  # Any: parsed JSON, of which each test reads some fields
    last = shown.bodies[-1]
    assert last["type"] == "complete"
    return last["payload"]


async def test_each_place_has_its_own_tools_and_prompt(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        offered = {}
        for depth in range(4):
            context = dict([*PUBMED.items()][:depth]) | {"report_id": "r-7"}
            await here.say(says("Hello."), context=context)
            offered[depth] = here.asked()
        tools = [offered[depth].tools - {"get_payload"} for depth in range(4)]
        assert tools[0] == {"my_loans"}
        assert [tools[depth + 1] - tools[depth] for depth in range(3)] == [
            {"read_report"},
            {"list_articles"},
            {"search_pubmed"},
        ]
        prompts = [offered[depth].prompt for depth in range(4)]
        assert [prompt.startswith("You help the readers of a research library.") for prompt in prompts] == [
            *[True] * 3,
            False,
        ]
        assert ["\nreport_id: r-7\n" in prompt for prompt in prompts] == [False, True, True, True]
        assert [prompt.endswith("by their ids.") for prompt in prompts] == [False, False, True, True]
        assert ["COMPARISON" in prompt for prompt in prompts] == [False, False, True, True]
        assert ["search_results" in prompt for prompt in prompts] == [False, False, False, True]


@pytest.mark.row("OLD-3")
async def test_a_page_that_nobody_configured_gets_what_holds_around_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        await here.say(says("Hello."), context={"current_page": "shop"})
        assert here.asked().tools == {"my_loans"}
        await here.say(says("Hello."), context={**PUBMED, "subtab": "shelf"})
        assert here.asked().tools >= {"my_loans", "read_report", "list_articles"}
        assert "search_pubmed" not in here.asked().tools


async def test_only_an_editor_is_offered_the_tool_for_editors_whatever_the_message_says(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        claims = {"current_page": "reports", "active_tab": "articles", "roles": ["editor"], "role": "editor"}
        shown = await here.say(calls("retract_article", article_id="a-1"), says("No."), context=claims)
        assert "retract_article" not in here.asked().tools
        assert payload_of(shown)["tool_history"][0]["status"] == "error"
        assert "diagnostics" not in payload_of(shown)
        done = calls("retract_article", article_id="a-1"), says("Yes.")
        shown = await here.say(*done, context={"current_page": "reports", "active_tab": "articles"}, who="editor")
        assert "retract_article" in here.asked().tools
        assert payload_of(shown)["tool_history"][0]["output"] == "a-1 is marked as retracted by editor."
        trace = payload_of(shown)["diagnostics"]
        assert trace["rounds"][0]["system"] == here.asked().prompt
        assert (trace["scope"], trace["context"]["active_tab"]) == (["reports", "articles"], "articles")


async def test_what_is_found_is_shown_at_once_and_reaches_the_model_only_when_it_asks(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        shown = await here.say(calls("search_pubmed", query="naps"), says("Done."), context=PUBMED)
        types = [(body["type"], body.get("progress")) for body in shown.bodies if body["type"].startswith("tool_")]
        assert types == [("tool_start", None), ("tool_progress", 0.0), ("tool_progress", 0.5), ("tool_complete", None)]
        found = payload_of(shown)["custom_payload"]
        assert found["type"] == "search_results" and [hit["id"] for hit in found["data"]["hits"]] == [
            "pm-31",
            "pm-57",
        ]
        assert "pm-57" not in here.asked().rest + here.asked().prompt
        chat_id = payload_of(shown)["conversation_id"]

        # The next turn, on another page.
        await here.say(says("Which?"), context={"current_page": "reports"}, chat_id=chat_id)
        listed = next(line for line in here.asked().prompt.split("\n") if line.startswith("- pl_"))
        assert listed.endswith("(search_results): naps: 2 found") and "search_pubmed" not in here.asked().tools
        payload_id = listed.split()[1]
        reads = calls("get_payload", payload_id=payload_id), says("pm-57.")
        await here.say(*reads, context={"current_page": "reports"}, chat_id=chat_id)
        assert "pm-57" in here.asked().rest


async def test_what_a_model_writes_becomes_a_payload_and_buttons_if_it_is_what_was_declared(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        context = {"current_page": "reports", "active_tab": "articles"}
        fits = {"left": "a-1", "right": "a-2", "verdict": "a-2"}
        buttons = [{"label": "Open", "action": "open_article"}, {"label": "Erase", "action": "erase"}]
        written = {"COMPARISON": fits, "SUGGESTED_VALUES": ["More"], "SUGGESTED_ACTIONS": buttons}
        words = "\n".join(["Here.", *(f"{marker}: {json.dumps(value)}" for marker, value in written.items())])
        shown = payload_of(await here.say(says(words), context=context, who="editor"))
        assert shown["message"] == "Here."
        assert (shown["custom_payload"]["type"], shown["custom_payload"]["data"]) == ("comparison", fits)
        assert shown["custom_payload"]["summary"] == "a-1 and a-2"
        assert shown["suggested_values"] == [{"label": "More", "value": "More"}]
        assert shown["suggested_actions"] == [{"label": "Open", "action": "open_article", "handler": "client"}]
        (raw,) = shown["diagnostics"]["raw_answers"].values()
        assert raw["dropped_actions_count"] == 1 and "COMPARISON" in json.dumps(raw)

        misfit = 'Here.\nCOMPARISON: {"left": "a-1"}'
        shown = payload_of(await here.say(says(misfit), context=context))
        assert (shown["message"], shown["custom_payload"]) == (misfit, None)


async def test_after_five_rounds_the_model_is_asked_for_a_summary_without_any_tools(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        shown = await here.say(*[calls("list_articles", report_id="r-7")] * 5, says("In short."), context=PUBMED)
        assert len(here.model.asked) == 6 and here.asked().tools == set()
        assert payload_of(shown)["failure"]["code"] == "max_tool_rounds"
        assert payload_of(shown)["message"].endswith("]]In short.")


CARD = "card-of-the-reader"


class Library(BaseHTTPRequestHandler):
    """Records the users for whom library cards are requested."""

    authorized: list[str | None]

    def do_GET(self) -> None:
        self.authorized.append(self.headers.get("Authorization"))
        body = b'{"loans": []}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the log lines out of the tests' output."""


async def test_the_library_is_asked_with_the_callers_card_which_nobody_else_sees(tmp_path: Path) -> None:
    authorized: list[str | None] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Library,), {"authorized": authorized})) as library:
        thread = threading.Thread(target=library.serve_forever, args=(0.05,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{library.server_address[1]}/loans"
            async with desk(tmp_path, THREADCAST_TOOLS__MY_LOANS__URL=url) as here:
                shown = await here.say(calls("my_loans"), says("Nothing."), context={}, card=f"Bearer {CARD}")
                assert payload_of(shown)["tool_history"][0]["output"] == '{"loans": []}'
                assert authorized == [f"Bearer {CARD}"]
                for secret in (CARD, "reader-token"):
                    asked = [json.dumps([each.body, each.headers]) for each in here.model.asked]
                    assert not any(secret in each for each in asked)
                    assert secret not in json.dumps(shown.bodies) + here.server.log_text()
        finally:
            library.shutdown()
            thread.join()
