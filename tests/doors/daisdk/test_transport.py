"""`web/ai-sdk`, Threadcast's transport for the AI SDK, in the chat of the published npm `ai`, on a real server."""

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.doors.daisdk.page import opened_page, text_in
from tests.doors.daisdk.test_pages import TOOLS, WEATHER, bare, read
from tests.integration.oneshot_client import prepare
from tests.integration.server_fixtures import chat_id
from tests.support.reader import watching
from tests.support.server import Process, command, started_server, user_message
from tests.support.unicode import UNICODE_TEXTS
from tests.torture.proxy import Proxy
from tests.web.installed import CLIENT, WEB, node_is_missing
from threadcast.compat.ai_sdk.parts import PENDING

__all__ = ["chat_id"]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with started_server(tmp_path_factory.mktemp("transport"), app=TOOLS) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Compile both packages, and return the addresses of their modules."""
    if wrong := node_is_missing():
        pytest.skip(wrong)
    directory = tmp_path_factory.mktemp("built")
    client = directory / "node_modules/threadcast-client"
    client.mkdir(parents=True)
    shutil.copy(CLIENT / "package.json", client)
    compiler = WEB / "node_modules/.bin/tsc"
    subprocess.run([compiler, "-p", CLIENT / "tsconfig.json", "--outDir", client / "dist"], check=True)
    (directory / "package.json").write_text('{"type": "module"}')
    source, built = WEB / "ai-sdk", directory / "dist"
    options = {
        "extends": str(source / "tsconfig.json"),
        "compilerOptions": {
            "rootDir": str(source / "src"),
            "outDir": str(built),
            "paths": {"threadcast-client": [str(client / "dist/index.d.ts")]},
        },
        "include": [str(source / "src")],
    }
    (directory / "tsconfig.json").write_text(json.dumps(options))
    subprocess.run([compiler, "-p", directory / "tsconfig.json"], check=True)
    return {"client": (client / "dist/index.js").as_uri(), "transport": (built / "index.js").as_uri()}


@pytest.mark.row("DOOR-3")
async def test_our_transport_streams_and_agrees_with_the_door(
    server: Process, chat_id: str, ours: dict[str, str]
) -> None:
    await prepare(server, chat_id, "demo/reasoning?words=5&rate=0")
    async with opened_page(server.url, chat_id, ours=ours) as page:
        assert (await page.send("one"))["error"] is None
        assert (await page.send("two"))["error"] is None
        assert bare(await page.messages()) == bare(await read(server, chat_id))
        assert (await page.do("regenerate"))["error"] is None
        assert bare(await page.messages()) == bare(await read(server, chat_id))
        mine = (await page.messages())[2]
        assert (await page.send("other", messageId=mine["id"]))["error"] is None
        assert text_in((await page.messages())[2]) == "other"
        assert bare(await page.messages()) == bare(await read(server, chat_id))


async def test_our_transport_decides_and_carries_out_tools(server: Process, chat_id: str, ours: dict[str, str]) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_page(server.url, chat_id, ours=ours, automatic=True, body={"tools": [WEATHER]}) as page:
        await page.send('call asks {"text": "x"}')
        approval = (await page.messages())[1]["parts"][-1]["approval"]["id"]
        await page.tell("approve", id=approval, approved=True)
        await page.until(lambda line: line.get("requests") == 2 and line["status"] == "ready")
        messages = await page.messages()
        assert len(messages) == 2 and "allowed: x" in text_in(messages[1])
        assert bare(messages) == bare(await read(server, chat_id))
        await page.send("call weather {}")
        call = (await page.messages())[3]["parts"][-1]
        assert call["state"] == "input-available"
        await page.tell("output", toolCallId=call["toolCallId"], tool="weather", output={"sun": 1})
        await page.until(lambda line: line.get("requests") == 4 and line["status"] == "ready")
        shown = await page.shown()
        assert '{"sun":1}' in text_in(shown["messages"][3]) and shown["requests"] == 4
        assert [made["toolName"] for made in shown["calls"]] == ["weather"]


async def test_a_call_beside_an_approval_lets_our_transport_answer(
    server: Process, chat_id: str, ours: dict[str, str]
) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with opened_page(server.url, chat_id, ours=ours, automatic=True) as page:
        await page.send('call asks {"text": "x"}\ncall clock {}')
        messages = await page.messages()
        assert bare(messages) == bare(await read(server, chat_id))
        (asks, clock) = [part for part in messages[1]["parts"] if part["type"].startswith("tool-")]
        assert clock["output"] == PENDING
        await page.tell("approve", id=asks["approval"]["id"], approved=True)
        await page.until(lambda line: line.get("requests") == 2 and line["status"] == "ready")
        messages = await page.messages()
        assert bare(messages) == bare(await read(server, chat_id)) and PENDING not in str(messages)


async def test_a_stop_of_our_transport_stops_the_run(server: Process, chat_id: str, ours: dict[str, str]) -> None:
    await prepare(server, chat_id, "demo/hang?after=2&rate=0")
    async with watching(server.url, chat_id) as watcher, opened_page(server.url, chat_id, ours=ours) as page:
        await page.tell("send", message={"text": "x"})
        await page.until(lambda line: line["length"] > 2)
        await page.do("stop")
        await watcher.at_rest()
        assert watcher.state is not None and watcher.state.runtime.outcome == "aborted"


async def test_a_cut_is_no_error_for_our_transport(server: Process, chat_id: str, ours: dict[str, str]) -> None:
    await prepare(server, chat_id, "demo/essay?words=80&rate=100")
    async with (
        Proxy("page > server", target=("127.0.0.1", int(server.url.rpartition(":")[2]))) as proxy,
        opened_page(f"http://127.0.0.1:{proxy.port}", chat_id, ours=ours) as page,
    ):
        await page.tell("send", message={"text": "x"}, wait=True)
        await page.until(lambda line: line.get("length", 0) > 20)
        proxy.reset()
        told = await page.until(lambda line: line.get("done"))
        assert told["status"] == "ready" and told["error"] is None
        messages = await page.messages()
    assert len(text_in(messages[1]).split()) == 80
    assert bare(messages) == bare(await read(server, chat_id))


async def test_tabs_of_our_transport_agree(server: Process, chat_id: str, ours: dict[str, str]) -> None:
    await prepare(server, chat_id, "demo/echo")
    async with (
        opened_page(server.url, chat_id, ours=ours, follows=True) as first,
        opened_page(server.url, chat_id, ours=ours, follows=True) as second,
    ):
        await first.send("from the first")
        await second.until(lambda line: line.get("followed") == 2)
        await command(server.url, chat_id, user_message("ours", "from us"))
        for page in (first, second):
            await page.until(lambda line: line.get("followed") == 4)
        assert bare(await first.messages()) == bare(await second.messages()) == bare(await read(server, chat_id))


async def test_all_of_unicode_comes_through_our_transport(server: Process, chat_id: str, ours: dict[str, str]) -> None:
    await prepare(server, chat_id, "demo/echo?rate=0")
    async with opened_page(server.url, chat_id, ours=ours) as page:
        for words in UNICODE_TEXTS:
            assert (await page.send(words))["error"] is None
        said = [text_in(message) for message in (await page.messages())[1::2]]
    assert said == [f"You said: {words}" for words in UNICODE_TEXTS]
