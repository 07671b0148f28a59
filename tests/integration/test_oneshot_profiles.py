"""One server, several assistants: each one-shot endpoint uses the profile that the operator bound to it (OLD-1)."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.oneshot_client import PATHS, body_for
from tests.integration.test_oneshot_frames import AGENT, CHINESE, PAGE, TOKENS, Desk, calls, desk, says
from tests.support.server import command, start
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("OLD-1")]

CONFIG = (
    TOKENS
    + """
[profiles.agent]
system_prompt = "I am agent."

[profiles.plain]
system_prompt = "I am plain."
tools = []

[profiles.ichor]
system_prompt = "I am ichor."
tools = ["everywhere"]
max_rounds = 1
[profiles.ichor.reply_guard]
forbid_scripts = ["Han"]

[profiles.page]
system_prompt = "I am page."
tools = ["find_drug"]
max_rounds = 2

[profiles.api]
system_prompt = "I am api."
params = { temperature = 0.1 }

[endpoints."/chat"]
profile = "plain"
mode = true

[endpoints."/v1/agent/chat"]
profile = "ichor"

[endpoints."/api/chat/stream"]
profile = "page"
mode = ["api"]

[endpoints."/v1/chat/completions"]
profile = "api"
"""
)
BOUND = dict(zip(PATHS, ("plain", "ichor", "page", "api"), strict=True))


async def said(
    here: Desk, path: str, *, query: str = "", chat_id: str | None = None, **more: Any
) -> str:  # Any: a body
    """Return the profile that answers, as its prompt shows."""
    body: JsonObject = {key: value for key, value in body_for(path, "hi", chat_id).items() if key != "stream"}
    here.model.replies = [says("ok")]
    answer = await here.post(path + query, **{**body, **more})
    assert answer.status_code == 200, answer.text
    return here.prompt.partition(".")[0].removeprefix("I am ")


async def test_each_endpoint_answers_with_its_own_profile(tmp_path: Path) -> None:
    async with desk(tmp_path, CONFIG) as here:
        for path, profile in BOUND.items():
            assert await said(here, path) == profile
        await said(here, "/chat")
        assert here.tools == set()
        await said(here, "/v1/chat/completions")
        assert here.model.asked[-1].body["temperature"] == 0.1

        # The profile's limits and its guard apply to the first message and to later messages.
        for who_asks in ("first", "second"):
            body: JsonObject = {"context_type": "a", "conversation_id": "limited"}
            limited = await here.ask(AGENT, *[calls("everywhere")] * 3, **body)
            assert limited.events.count("message_start") == 1, who_asks
        page = await here.ask(PAGE, *[calls("find_drug", name="x")] * 3, context={"current_page": "a"})
        assert len(here.model.asked) == 2 and page.bodies[-1]["type"] == "complete"
        guarded = await here.ask(AGENT, says(CHINESE), says("Well."), context_type="a")
        assert len(here.model.asked) == 1 and guarded.events[-1] == "message_complete"  # the only allowed round is used
        plain = await here.ask("/chat", says(CHINESE))
        assert plain.text() == CHINESE and len(here.model.asked) == 1


async def test_a_chat_keeps_its_profile_wherever_it_is_asked(tmp_path: Path) -> None:
    async with desk(tmp_path, CONFIG) as here:
        await said(here, AGENT, chat_id="c1")
        assert (await here.read("/v1/chats/c1"))["thread"]["mode"] == "ichor"
        for path in PATHS:
            assert await said(here, path, chat_id="c1") == "ichor"
        native = {"type": "set_params", "client_request_id": "n", "patch": {"title": "Made natively"}}
        await command(here.server.url, "n1", native, {"Authorization": "Bearer ann"})
        assert await said(here, AGENT, chat_id="n1") == "agent"
        assert (await here.read("/v1/chats/n1"))["thread"]["mode"] == "agent"


async def test_mode_is_read_where_the_operator_allows_it(tmp_path: Path) -> None:
    async with desk(tmp_path, CONFIG) as here:
        assert await said(here, "/chat", mode="page") == "page"
        assert await said(here, "/chat", query="?mode=page") == "page"
        assert await said(here, PAGE, mode="api") == "api"
        assert await said(here, PAGE, mode="page") == "page"
        assert await said(here, AGENT, mode="api") == "ichor"
        assert await said(here, AGENT, query="?mode=api", mode=7) == "ichor"
        for path, mode in ((PAGE, "ichor"), ("/chat", "nobody"), ("/chat", 7)):
            refused = await here.post(path, mode=mode)
            assert (refused.status_code, refused.json()["path"]) == (400, "/mode")
        assert "api, page" in (await here.post(PAGE, mode="ichor")).json()["detail"]

        # In an existing chat, the mode applies to one run.
        await said(here, AGENT, chat_id="c1")
        assert await said(here, "/chat", chat_id="c1", mode="page") == "page"
        assert await said(here, "/chat", chat_id="c1") == "ichor"


async def test_a_refused_message_makes_no_chat(tmp_path: Path) -> None:
    config = CONFIG + "\n[limits]\nturns_per_hour = 1\n"
    async with desk(tmp_path, config) as here:
        assert (await here.post("/chat", message="  ")).status_code == 400
        assert (await here.read("/v1/chats"))["items"] == []
        assert await said(here, "/chat") == "plain"
        assert (await here.post("/chat")).status_code == 429
        assert len((await here.read("/v1/chats"))["items"]) == 1


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            '[endpoints."/v2/agent"]\nprofile = "agent"',
            "endpoints: there is no '/v2/agent'; known here: /chat, /v1/agent",
        ),
        (
            '[endpoints."/chat"]\nprofile = "agnet"',
            "endpoints.\"/chat\".profile: there is no profile 'agnet'; did you mean",
        ),
        ('[endpoints."/chat"]\nmode = ["x"]', "endpoints.\"/chat\".mode: there is no profile 'x'"),
        ('[endpoints."/chat"]\nmodes = true', "unknown key endpoints./chat.modes; did you mean endpoints./chat.mode?"),
        ('[endpoints."/chat"]\nmode = "x"', "endpoints./chat.mode: Expected"),
    ],
)
async def test_an_endpoint_or_profile_that_nobody_knows_stops_the_start(
    tmp_path: Path, config: str, sentence: str
) -> None:
    (tmp_path / "threadcast.toml").write_text(config)
    arguments = ["serve", "--port", "0", "--memory", "--config", str(tmp_path / "threadcast.toml")]
    with start(*arguments, log=tmp_path / "log") as process:
        assert await process.ended() != 0
        assert sentence in process.log_text()
