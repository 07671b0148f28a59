"""All doors on one chat, each with its published client: the chat begins through one door, is watched through a second,
its call is approved through a third, and it is continued through two more. In the end each client shows the content of
the chat's snapshot."""

from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.doors.dagui.agent import opened_agent, runs_in
from tests.doors.daisdk.page import opened_page, text_in
from tests.doors.dmcp.clients import opened_client, result_of
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, serving

pytestmark = pytest.mark.anyio

CONFIG = '[models]\ndefault = "demo/tools"\n[tools.calculator]\npolicy = "ask"\n'
CHAT = "all-doors"


@pytest.mark.row("DOOR-9")
async def test_one_chat_through_all_doors(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, config=CONFIG) as server,
        watching(server.url, CHAT) as watcher,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        opened_client(server.url, "2026-07-28") as mcp,
        opened_agent(server.url, CHAT) as agent,
    ):
        async with opened_page(server.url, CHAT) as page:  # begun with the AI SDK
            begun = await page.send('call calculator {"expression": "6*7"}')
            assert begun["error"] is None
            (_, asking) = await page.messages()
            (approval,) = [part for part in asking["parts"] if part.get("approval")]
        assert await agent.run() is None  # watched with AG-UI
        (interrupt,) = (await agent.shown())["events"][-1]["outcome"]["interrupts"]
        assert interrupt["toolCallId"] == approval["toolCallId"]
        waits = await result_of(mcp, "read_chat", chat_id=CHAT)
        (pending,) = waits["pending"]
        assert pending["tool_call_id"] == approval["toolCallId"]
        await result_of(mcp, "decide", chat_id=CHAT, tool_call_id=pending["tool_call_id"], accepted=True)  # decided
        await watcher.at_rest()
        more = await client.chat.completions.create(  # continued with Chat Completions
            model="demo/echo", messages=[{"role": "user", "content": "more"}], metadata={"chat_id": CHAT}
        )
        assert more.choices[0].message.content == "You said: more"
        last = await client.responses.create(model="demo/echo", input="last", conversation=CHAT)
        again = await client.responses.retrieve(last.id)  # and retrieved as a response
        assert again.output_text == last.output_text == "You said: last"
        await watcher.at_rest(3)

        own = [(role, text) for role, text in watcher.messages if text]
        assert [text for role, text in own if role == "user"][1:] == ["more", "last"]
        assert ("tool", "42") in own

        # the first AG-UI client still waits for its own answer to the interrupt, so another client reads the chat
        async with opened_agent(server.url, CHAT) as other:
            assert await other.run() is None
            shown = await other.shown()
        runs_in(shown["events"])
        theirs = [(each["role"], each["content"]) for each in shown["messages"] if each.get("content")]
        assert theirs == own

        read = await result_of(mcp, "read_chat", chat_id=CHAT)
        assert [(each["role"], each["text"]) for each in read["messages"] if each["text"]] == own

        async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as http:
            ui: list[Any] = (await http.get(f"/ai-sdk/chat/{CHAT}")).json()
        outputs = [part["output"] for message in ui for part in message["parts"] if "output" in part]
        assert outputs == [text for role, text in own if role == "tool"]
        for role in ("user", "assistant"):
            said = "".join(text for each, text in own if each == role)
            assert "".join(text_in(message) for message in ui if message["role"] == role) == said
