"""Approvals under attack: by programs that show no arguments, by callers who may not approve, and by modes that would
skip the question."""

import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, run_command, serving, user_message
from tests.support.tokens import bearer, token_of, tokens
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

APP = Path(__file__).with_name("tools_of_approvals.py")

MODELS = '[models]\ndefault = "demo/tools?rate=0"\n'

READER = hashlib.sha256(b"ann-reads-only").hexdigest()

CONFIG = MODELS + tokens(ann="", bob="") + f'[[auth.tokens]]\nid = "ann"\nsha256 = "{READER}"\npermissions = []\n'
"""ann and bob may approve; ann also has a second token without the permission to approve."""

READS_ONLY = {"Authorization": "Bearer ann-reads-only"}

CODE = "4711-the-code-of-the-safe"

Serve = Callable[[str], AbstractAsyncContextManager[Process]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serve(config: str) -> AsyncIterator[Process]:
        async with serving(tmp_path, config=config, app=APP) as server:
            yield server

    return serve


@asynccontextmanager
async def asked(server: Process, text: str, headers: dict[str, str] | None = None) -> AsyncIterator[Watcher]:
    """Yield a chat c1 in which the model has made the call in `text`; the call waits for a person."""
    async with watching(server.url, "c1", headers=headers) as tab:
        await command(server.url, "c1", user_message("a", text), headers)
        await tab.until(is_paused)
        yield tab


def is_paused(tab: Watcher) -> bool:
    return tab.state is not None and tab.state.runtime.paused


def question(tab: Watcher) -> JsonObject:
    asked: JsonObject = next(frame for frame in reversed(tab.frames) if frame["type"] == "pause_required")
    reason: JsonObject = asked["reasons"][0]
    return reason


def refusals(tab: Watcher) -> list[str]:
    return [frame["result"]["code"] for frame in tab.frames if frame["type"] == "ack" and not frame["accepted"]]


def results(tab: Watcher) -> list[str]:
    assert tab.state is not None
    return [str(message.content) for message in tab.state.nodes.values() if message.role == "tool"]


async def decide(
    server: Process, tab: Watcher, request_id: str, headers: dict[str, str] | None = None, **more: object
) -> httpx2.Response:
    decision = {"type": "tool_decision", "tool_call_id": question(tab)["tool_call_id"], "accepted": True, **more}
    return await command(server.url, "c1", {**decision, "client_request_id": request_id}, headers)


@pytest.mark.row("SEC-8")
async def test_with_tokens_an_approval_without_the_hash_of_what_was_shown_is_refused(serve: Serve) -> None:
    async with serve(CONFIG) as server, asked(server, 'call pay {"amount":5}', bearer("ann")) as tab:
        await decide(server, tab, "blind", bearer("ann"))
        await tab.until(lambda tab: refusals(tab) == ["bad_request"])
        batch: JsonObject = {"tool_call_id": question(tab)["tool_call_id"], "accepted": True}
        many = {"type": "tool_decisions", "client_request_id": "batch", "decisions": [batch]}
        await command(server.url, "c1", many, bearer("ann"))
        await tab.until(lambda tab: refusals(tab) == ["bad_request"] * 2)
        await decide(server, tab, "wrong", bearer("ann"), input_hash="0" * 32)
        await tab.until(lambda tab: refusals(tab)[2:] == ["conflict"])
        assert is_paused(tab)
        sentence = next(f for f in tab.frames if f["type"] == "ack" and f["client_request_id"] == "blind")
        assert "input_hash" in sentence["result"]["error"]
        await decide(server, tab, "seen", bearer("ann"), input_hash=question(tab)["input_hash"])
        await tab.at_rest()
        assert results(tab) == ["paid 5"]


async def test_a_denial_needs_no_hash(serve: Serve) -> None:
    async with serve(CONFIG) as server, asked(server, 'call pay {"amount":5}', bearer("ann")) as tab:
        await decide(server, tab, "no", bearer("ann"), accepted=False)
        await tab.at_rest()
        assert results(tab) == ["The call was denied by user."]


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (MODELS, False),
        (MODELS + "[approvals]\nrequire_input_hash = true\n", True),
        (CONFIG + "[approvals]\nrequire_input_hash = false\n", False),
    ],
)
async def test_the_setting_decides_whether_the_hash_is_needed(serve: Serve, config: str, refused: bool) -> None:
    headers = bearer("ann")
    async with serve(config) as server, asked(server, 'call pay {"amount":5}', headers) as tab:
        await decide(server, tab, "blind", headers)
        await tab.until(lambda tab: any(f["type"] == "ack" and f["client_request_id"] == "blind" for f in tab.frames))
        assert refusals(tab) == (["bad_request"] if refused else [])


@pytest.mark.row("EVT-8")
async def test_hidden_arguments_are_given_to_those_who_may_decide_and_to_nobody_else(serve: Serve) -> None:
    async with serve(CONFIG) as server, asked(server, f'call open_safe {{"code":"{CODE}"}}', bearer("ann")) as tab:
        path = f"{server.url}/v1/chats/c1/questions"
        async with httpx2.AsyncClient() as client:
            foreign = await client.get(path, headers=bearer("bob"))
            unknown = await client.get(path.replace("c1", "c2"), headers=bearer("bob"))
            assert (foreign.status_code, foreign.content) == (404, unknown.content)
            assert (await client.get(path)).status_code == 401
            forbidden = await client.get(path, headers=READS_ONLY)
            assert (forbidden.status_code, forbidden.json()["code"]) == (403, "forbidden")
            answer = (await client.get(path, headers=bearer("ann"))).json()
            assert answer["questions"][0]["input"] == {"code": CODE}
            assert answer["questions"][0]["input_hash"] == question(tab)["input_hash"]
        assert question(tab)["hides_input"] is True
        async with watching(server.url, "c1", headers=READS_ONLY) as late:
            await late.until(is_paused)
        # The user's message is public; the call that the model made from it is not.
        made = [frame for each in (tab, late) for frame in each.frames if frame["type"] != "message_added"]
        asking = [frame for frame in made if frame["type"] in ("pause_required", "tool_status", "stream_delta")]
        assert asking and all(CODE not in str(frame) for frame in asking)
        await decide(server, tab, "seen", bearer("ann"), input_hash=question(tab)["input_hash"])
        await tab.at_rest()
        async with httpx2.AsyncClient() as client:
            assert (await client.get(path, headers=bearer("ann"))).json() == {"questions": []}


async def test_the_terminal_shows_hidden_arguments_on_demand(serve: Serve) -> None:
    async with serve(CONFIG) as server:
        typed = f'call open_safe {{"code":"{CODE}"}}\nshow\ny\n'
        talked = await anyio.run_process(
            [sys.executable, "-m", "threadcast.cli", "chat", "c1", "--url", server.url],
            input=typed.encode(),
            stderr=subprocess.STDOUT,
            env={**os.environ, "THREADCAST_TOKEN": token_of("ann")},
            check=False,
        )
        said = talked.stdout.decode()
        assert "? allow open_safe with arguments that are hidden" in said
        assert f'{{"code":"{CODE}"}}' in said
        assert "open after" in said
        assert talked.returncode == 0


async def test_a_caller_who_may_not_approve_cannot_decide(serve: Serve) -> None:
    async with serve(CONFIG) as server, asked(server, 'call pay {"amount":5}', READS_ONLY) as tab:
        shown = question(tab)["input_hash"]
        answer = await decide(server, tab, "own", READS_ONLY, input_hash=shown)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        browser = {"type": "browser_context_decision", "pending_message_id": question(tab)["tool_call_id"]}
        await command(server.url, "c1", {**browser, "client_request_id": "b", "input_hash": shown}, READS_ONLY)
        await tab.until(lambda tab: len(refusals(tab)) > 0)
        assert is_paused(tab)


@pytest.mark.row("SEC-8")
async def test_autonomous_mode_does_not_override_ask_unless_the_operator_allows_it(serve: Serve) -> None:
    allowed = "[profiles.night]\nallow_autonomous = true\n"
    for mode, runs in (("agent", False), ("night", True)):
        async with serve(CONFIG + allowed) as server, watching(server.url, "c1", headers=bearer("ann")) as tab:
            patch = {"autonomous_no_confirm": True, "mode": mode}
            await command(
                server.url, "c1", {"type": "set_params", "client_request_id": "p", "patch": patch}, bearer("ann")
            )
            # The message's own mode and parameter do not skip the question either.
            params = {"autonomous_no_confirm": True, "mode": mode}
            await command(server.url, "c1", user_message("a", 'call pay {"amount":5}', params=params), bearer("ann"))
            await tab.until(lambda tab: is_paused(tab) or bool(results(tab)))
            assert results(tab) == (["paid 5"] if runs else [])


async def test_a_new_token_may_approve_only_if_that_was_asked_for(serve: Serve, tmp_path: Path) -> None:
    made = {}
    for name, more in (("ann", []), ("bob", ["--permissions", "approve"])):
        said = run_command("token", name, *more, directory=tmp_path, store_url="")
        secret = next(word for word in said.split() if word.startswith("tc_"))
        lines = said[said.index("[[auth.tokens]]") :].splitlines()[:4]
        made[name] = ({"Authorization": f"Bearer {secret}"}, "\n".join(lines) + "\n")
        assert tomllib.loads(made[name][1])["auth"]["tokens"][0]["permissions"] == (["approve"] if more else [])
        assert ("may not approve tool calls" in said) == (not more)
    async with serve(MODELS + made["ann"][1] + made["bob"][1]) as server:
        for name, status in (("ann", 403), ("bob", 202)):
            headers = made[name][0]
            async with watching(server.url, name, headers=headers) as tab:
                await command(server.url, name, user_message("a", 'call pay {"amount":5}'), headers)
                await tab.until(is_paused)
                decision = {"type": "tool_decision", "client_request_id": "d", "accepted": True}
                reason = question(tab)
                body = {**decision, "tool_call_id": reason["tool_call_id"], "input_hash": reason["input_hash"]}
                assert (await command(server.url, name, body, headers)).status_code == status


async def test_the_owner_of_a_laptop_may_approve_without_a_token(serve: Serve) -> None:
    async with serve(MODELS) as server, asked(server, 'call pay {"amount":5}') as tab:
        await decide(server, tab, "yes", input_hash=question(tab)["input_hash"])
        await tab.at_rest()
        assert results(tab) == ["paid 5"]
