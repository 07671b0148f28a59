"""Scopes of a profile over real HTTP: a new scope needs only configuration and one file of tools, and no prompt is sent
to clients.

The tests start a server as an operator does; the model is an OpenAI-compatible server that records its requests.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.integration.fake_openai import (
    DONE,
    STOP,
    FakeOpenAI,
    Reply,
    chunk,
    failure,
    text,
)
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from tests.support.tokens import bearer, tokens
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOKENS = tokens(ann='permissions = ["approve", "metrics"]\nroles = ["editor"]', bob='permissions = ["approve"]')

CONFIG = (
    TOKENS
    + """
[profiles.desk]
title = "Desk"
system_prompt = "You help at the desk."
guidelines = "Be brief."

[profiles.desk.scopes."reports/articles"]
guidelines = "Quote your sources."
highlight = ["article_id"]
tools = ["draft_article"]
payloads = ["article_draft"]
actions = [{ action = "publish", label = "Publish", description = "Make it public." }]

[payloads.article_draft]
description = "A draft of an article."
marker = "ARTICLE_DRAFT"
schema = { type = "object", required = ["title"] }
summary = "{title}"
"""
)

DATA = "the-body-of-the-article"

TOOLS = f"""
from threadcast.tools.base import Payload, ToolContext, ToolResult
from threadcast.tools.python import tool
from threadcast.tools.traits import Traits


@tool()
def draft_article(title: str) -> ToolResult:
    "Draft an article."
    draft = Payload(type="article_draft", data={{"title": title, "body": "{DATA}"}}, summary=f"Draft: {{title}}")
    return ToolResult(content="drafted", payloads=[draft])


@tool()
def whereabouts(ctx: ToolContext) -> dict[str, object]:
    "Where the chat is."
    return {{"scope": ctx.scope, "interaction": ctx.interaction, "context": ctx.context}}


@tool(traits=Traits(required_role="editor"))
def erase() -> str:
    "Erase everything."
    return "gone"
"""


@asynccontextmanager
async def desk(tmp_path: Path, fake: FakeOpenAI, config: str = CONFIG, tools: str = TOOLS) -> AsyncIterator[Process]:
    """Run a server whose profile has a scope; the scope consists of these two files."""
    app = tmp_path / "desk_tools.py"
    app.write_text(tools)
    environment = {"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": "sk-x", "OPENAI_MODEL": "tiny"}
    async with serving(tmp_path, config=config, app=app, environment=environment) as process:
        yield process


@pytest.fixture
async def server(tmp_path: Path, fake: FakeOpenAI) -> AsyncIterator[Process]:
    async with desk(tmp_path, fake) as process:
        yield process


def calls(name: str, **arguments: object) -> Reply:
    call = {"index": 0, "id": "call_1", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return Reply([chunk(delta={"tool_calls": [call]}), chunk(finish_reason="tool_calls"), DONE])


def says(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


class Asked:
    """One request that the model received."""

    def __init__(self, body: JsonObject) -> None:
        self.tools = [tool["function"]["name"] for tool in body.get("tools", [])]
        first, *rest = body["messages"]
        assert first["role"] in ("system", "developer")
        self.prompt = str(first["content"])
        self.rest = json.dumps(rest)


async def get(server: Process, path: str, who: str = "ann") -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return await client.get(server.url + path, headers=bearer(who))


async def in_desk(server: Process, chat_id: str, who: str = "ann") -> None:
    patch = {"type": "set_params", "client_request_id": "mode", "patch": {"mode": "desk"}}
    assert (await command(server.url, chat_id, patch, bearer(who))).status_code == 200


@pytest.mark.row("CTX-9", "CTX-3", "CTX-4", "CTX-5", "TOOL-5", "PAY-7", "PAY-8")
async def test_a_new_place_with_its_tool_and_its_payload_is_configuration_and_one_file_of_tools(
    server: Process, fake: FakeOpenAI
) -> None:
    await in_desk(server, "c1")
    async with watching(server.url, "c1", headers=bearer("ann")) as watcher:
        fake.replies = [says("Hello.")]
        await command(server.url, "c1", user_message("a", "hi"), bearer("ann"))
        await watcher.at_rest(1)
        outside = Asked(fake.asked[0].body)
        assert outside.prompt == (
            "You help at the desk.\n\n# Context\nThe user's roles, by authentication: editor\n\n# Guidelines\nBe brief."
        )
        assert "draft_article" not in outside.tools and "get_payload" not in outside.tools

        place = {"scope": ["reports", "articles"], "article_id": "a-7"}
        fake.replies = [calls("draft_article", title="Rain"), says("Here it is.")]
        await command(server.url, "c1", user_message("b", "draft it", context=place), bearer("ann"))
        await watcher.at_rest(2)
        assert watcher.state is not None
        (payload,) = watcher.state.payloads
        assert (payload.payload_type, payload.data["body"]) == ("article_draft", DATA)
        first, second = (Asked(each.body) for each in fake.asked[1:3])
        assert set(first.tools) - set(outside.tools) == {"draft_article", "get_payload"}
        assert "# Guidelines\nQuote your sources." in first.prompt and "Be brief." not in first.prompt
        assert '# Context\narticle_id: a-7\n{"scope":["reports","articles"],"article_id":"a-7"}' in first.prompt
        assert "Write: ARTICLE_DRAFT: {json}" in first.prompt and '"required":["title"]' in first.prompt
        assert "- publish (handler client): Publish - Make it public." in first.prompt
        assert payload.payload_id not in first.prompt
        assert f"- {payload.payload_id} (article_draft): Draft: Rain" in second.prompt
        assert DATA not in second.prompt + second.rest

        # In other scopes of the profile the tool is not offered, but its earlier payloads can still be read.
        fake.replies = [calls("get_payload", payload_id=payload.payload_id), says("It is about rain.")]
        await command(server.url, "c1", user_message("c", "read it", context={"scope": "sales"}), bearer("ann"))
        await watcher.at_rest(3)
        asks, reads = (Asked(each.body) for each in fake.asked[3:5])
        assert "draft_article" not in asks.tools and "get_payload" in asks.tools
        assert DATA not in asks.prompt + asks.rest
        assert DATA in reads.rest and DATA not in reads.prompt
        assert watcher.messages[-1] == ("assistant", "It is about rain.")


@pytest.mark.row("CTX-1", "CMD-18")
async def test_a_tool_is_given_the_context_and_the_interaction_that_stand_with_the_message(
    server: Process, fake: FakeOpenAI
) -> None:
    await in_desk(server, "c1")
    async with watching(server.url, "c1", headers=bearer("ann")) as watcher:
        fake.replies = [calls("whereabouts"), says("There.")]
        context = {"scope": "reports/articles/draft", "article_id": "a-7"}
        interaction = {"type": "form_submitted", "action": "save", "data": {"title": "Rain"}}
        asks = user_message("a", "where?", context=context, interaction=interaction)
        await command(server.url, "c1", asks, bearer("ann"))
        await watcher.at_rest(1)
        assert watcher.state is not None
        asked = watcher.state.nodes[watcher.state.path[0]]
        assert (asked.context, asked.interaction) == (context, interaction)
        told = json.loads(watcher.messages[2][1])
        assert told == {"scope": ["reports", "articles"], "interaction": interaction, "context": context}
        words = 'an interaction: form_submitted, action "save", data {"title":"Rain"}'
        assert words in Asked(fake.asked[0].body).prompt

        too_large = await command(server.url, "c1", user_message("b", "x", context={"x": "y" * 66_000}), bearer("ann"))
        assert (too_large.status_code, too_large.json()["path"]) == (413, "/context")
        odd = await command(server.url, "c1", user_message("c", "x", interaction={"type": "odd"}), bearer("ann"))
        assert (odd.status_code, odd.json()["code"]) == (400, "bad_request")
        assert len(fake.asked) == 2


@pytest.mark.row("TOOL-12", "TOOL-5", "CTX-7")
async def test_the_catalogue_is_that_of_the_place_and_of_the_callers_roles(server: Process, fake: FakeOpenAI) -> None:
    async def names(query: str, who: str = "ann") -> list[str]:
        found = await get(server, f"/v1/tools{query}", who)
        assert found.status_code == 200, found.text
        return [tool["name"] for tool in found.json()]

    whole = await names("")
    assert {"draft_article", "erase", "get_payload"} <= set(whole)
    assert set(whole) - set(await names("", "bob")) == {"erase"}
    inside = await names("?mode=desk&scope=reports/articles")
    assert inside == whole
    outside = await names("?mode=desk")
    assert set(whole) - set(outside) == {"draft_article", "get_payload"}
    assert await names("?mode=desk&scope=reports") == outside
    assert set(outside) - set(await names("?mode=desk", "bob")) == {"erase"}
    for query, path in (("?mode=nobody", "/mode"), ("?mode=desk&scope=sales", "/scope")):
        refused = await get(server, f"/v1/tools{query}")
        assert (refused.status_code, refused.json()["path"]) == (400, path)

    caps = (await get(server, "/v1/caps")).json()
    assert caps["scopes"] == {"agent": [], "desk": [["reports", "articles"]]}
    (kind,) = caps["payload_types"]["desk"]
    assert (kind["name"], kind["scopes"]) == ("article_draft", [["reports", "articles"]])
    assert caps["payload_types"]["agent"] == []
    modes = {mode["id"]: mode["tools_count"] for mode in (await get(server, "/v1/chat-modes")).json()["modes"]}
    assert modes["desk"] == len(outside)

    # The model is offered the tools of the catalogue, and a request body cannot make its caller an editor.
    await in_desk(server, "c1", "bob")
    async with watching(server.url, "c1", headers=bearer("bob")) as watcher:
        fake.replies = [calls("erase"), says("I may not.")]
        claim = {"role": "editor", "roles": ["editor"]}
        asks = user_message("a", "erase", context=claim, params={"metadata": claim})
        await command(server.url, "c1", {**asks, "roles": ["editor"]}, bearer("bob"))
        await watcher.at_rest()
    assert set(Asked(fake.asked[0].body).tools) == set(await names("?mode=desk", "bob"))
    assert watcher.messages[2][0] == "tool" and watcher.messages[2][1].startswith("There is no tool 'erase'.")
    assert "by authentication" not in Asked(fake.asked[0].body).prompt


async def test_a_one_shot_request_for_a_scope_that_the_profile_does_not_declare_is_refused(
    server: Process, client: httpx2.AsyncClient, fake: FakeOpenAI
) -> None:

    async def ask(context_type: object) -> httpx2.Response:
        body = {"message": "x", "context_type": context_type, "conversation_id": "c1"}
        wants = {**bearer("ann"), "Accept": "application/json"}
        return await client.post("/v1/agent/chat", json=body, headers=wants)

    await in_desk(server, "c1")
    refused = await ask("sales")
    assert (refused.status_code, refused.json()["path"]) == (400, "/context_type")
    assert "reports/articles" in refused.json()["detail"]
    assert fake.asked == []
    fake.replies = [says("Hello.")] * 3
    for known in ("reports", ["reports", "articles"], "reports/articles"):
        assert (await ask(known)).status_code == 200
    offered = ["draft_article" in Asked(each.body).tools for each in fake.asked]
    assert offered == [False, True, True]


WORDS = ("identity", "guidelines", "instructions", "section", "place")

SECRETIVE = (
    TOKENS
    + """
[profiles.agent]
system_prompt = "planted-identity"
guidelines = "planted-guidelines"
custom_instructions = "planted-instructions"
sections = ["identity", "mine", "broken", "context", "capabilities", "custom_instructions", "guidelines"]

[profiles.agent.scopes.inside]
guidelines = "planted-place"
"""
)

SECRETIVE_TOOLS = (
    TOOLS
    + """
from threadcast.profiles.prompt import PromptContext, section


@section("mine")
def mine(prompt: PromptContext) -> str:
    return "planted-section"


@section("broken")
def broken(prompt: PromptContext) -> str:
    raise ValueError(prompt.identity)
"""
)


@pytest.mark.row("CTX-8", "CTX-2")
async def test_the_words_of_a_prompt_appear_in_no_event_snapshot_export_list_or_log(
    tmp_path: Path, fake: FakeOpenAI
) -> None:
    async with desk(tmp_path, fake, SECRETIVE, SECRETIVE_TOOLS) as server:
        async with watching(server.url, "c1", headers=bearer("ann")) as watcher:
            fake.replies = [calls("draft_article", title="Rain"), says("Done.")]
            await command(server.url, "c1", user_message("a", "hi"), bearer("ann"))
            await watcher.at_rest(1)
            fake.replies = [says("Inside.")]
            inside = user_message("b", "go in", params={"scope": ["inside"]})
            await command(server.url, "c1", inside, bearer("ann"))
            await watcher.at_rest(2)
            fake.replies = [failure(400, {"message": "no"})]
            await command(server.url, "c1", user_message("c", "fail"), bearer("ann"))
            await watcher.at_rest(3)
            frames = json.dumps(watcher.frames)
        prompts = "\n".join(Asked(each.body).prompt for each in fake.asked)
        assert [word for word in WORDS if f"planted-{word}" not in prompts] == [], "each was said to the model"

        async with watching(server.url, "c1", headers=bearer("ann")) as late:
            await late.until(lambda w: w.state is not None)
        seen = {"frames": frames, "snapshot": json.dumps(late.frames)}
        paths = [
            *("/v1/chats", "/v1/chats/c1", "/v1/chats/c1/export", "/v1/chats/c1/params", "/v1/caps", "/v1/tools"),
            *("/v1/chat-modes", "/v1/trajectories", "/v1/trajectories/c1", "/metrics", "/v1/tools?mode=agent"),
        ]
        for path in paths:
            answer = await get(server, path)
            assert answer.status_code == 200, path
            seen[path] = answer.text
    seen["log"] = server.log_text()
    assert "model.failed" in seen["log"] and "section.failed" in seen["log"]
    assert [(place, word) for place, said in seen.items() for word in WORDS if f"planted-{word}" in said] == []
