"""During a deploy with two versions on one store, the older version neither folds nor shows chats that the newer
version wrote.

The newer version is a real process whose format number is one higher (`newer_app.py`). An old worker that claims such a
chat hands it back after a second, until a new worker has it; an old web process ends its streams with a time to
reconnect, and answers 503; a new web process serves all chats. After a downgrade, only the chats that the new version
wrote wait for that version.
"""

from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.fleet import Fleet
from tests.support.reader import TimedWatcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, ask, command, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.slow(20)]

NEWER = Path(__file__).with_name("newer_app.py")
ECHO = "demo/echo?rate=0"
ESSAY = "demo/essay?words=5000"
"""At forty words a second the answer takes two minutes, which is long enough for a worker to start on any machine; the
test ends the answer earlier."""
CHATS = 6


async def status(web: Process, path: str) -> tuple[int, str]:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        answer = await client.get(f"{web.url}/v1/chats/{path}")
    return answer.status_code, str(answer.json().get("code", ""))


async def talk(web: Process, chat_id: str, request_id: str, runs: int) -> list[tuple[str, str]]:
    """Post one question and wait for its answer."""
    async with watching(web.url, chat_id) as chat:
        await ask(web.url, chat_id, f"{request_id}?", ECHO, request_id)
        await chat.at_rest(runs)
        return chat.messages


async def test_a_chat_that_the_new_version_wrote_is_served_by_it_alone_and_soon(fleet: Fleet) -> None:
    """Both workers claim chats; the old worker hands a chat of the new format back until the new worker has it."""
    old_web, new_web = await fleet.add_web(), await fleet.add_web("--app", str(NEWER))
    old = await fleet.add_worker()
    names = [f"c{number}" for number in range(CHATS)]
    for name in names:
        assert len(await talk(old_web, name, "a", 1)) == 2
    new = await fleet.add_worker(NEWER)
    fleet.workers.remove(old)
    assert await old.stop() == 0
    for name in names[: CHATS // 2]:
        assert len(await talk(new_web, name, "b", 2)) == 4
    old = await fleet.add_worker()

    async def again(name: str, runs: int) -> None:
        said = await talk(new_web, name, "c", runs)
        assert [role for role, _ in said] == ["user", "assistant"] * runs, "all of it, once"

    async with anyio.create_task_group() as tasks:
        for number, name in enumerate(names):
            tasks.start_soon(again, name, 3 if number < CHATS // 2 else 2)
    bounced = {str(line["chat_id"]) for line in fleet.logged("chat.newer_version")}
    assert bounced <= set(names)

    # An old web process refuses to show a chat that it cannot read, and reports why.
    assert await status(old_web, "c0") == (503, "unavailable")
    assert await status(old_web, "c0/params") == (503, "unavailable")
    assert await status(old_web, "subscribe?chat_id=c0") == (503, "unavailable")
    assert (await status(new_web, "c0"))[0] == 200

    # A downgrade: the new worker is stopped. The chats that it wrote wait, are listed, and are not lost.
    fleet.workers.remove(new)
    assert await new.stop() == 0
    posted = await command(old_web.url, "c0", user_message("d", "d?", params={"model": ECHO}))
    assert posted.status_code == 202
    with anyio.fail_after(DEADLINE_SECONDS):
        while not any(line["chat_id"] == "c0" for line in fleet.logged("chat.newer_version")):
            await anyio.sleep(0.05)
    assert len(await talk(old_web, "fresh", "a", 1)) == 2, "the old worker is not held up by what it cannot do"
    await fleet.add_worker(NEWER)
    async with watching(new_web.url, "c0") as chat:
        await chat.until(lambda w: w.state is not None and w.state.is_at_rest and len(w.messages) == 8)
        assert [role for role, _ in chat.messages] == ["user", "assistant"] * 4
    assert old in fleet.workers


async def test_readers_of_an_old_web_process_are_sent_on_the_moment_the_new_version_writes(fleet: Fleet) -> None:
    """During an answer, the old worker hands over to a new one, and the reader resumes at a new web process exactly
    where it stopped."""
    old_web, new_web = await fleet.add_web(), await fleet.add_web("--app", str(NEWER))
    old = await fleet.add_worker()
    chat = TimedWatcher("c1")
    async with watching(old_web.url, "c1", watcher=chat):
        await ask(old_web.url, "c1", "write", f"{ESSAY}&rate=40")
        await chat.until(lambda w: w.types().count("stream_delta") > 5)
        await fleet.add_worker(NEWER)
        assert await old.stop() == 0
        with anyio.fail_after(DEADLINE_SECONDS):
            while not chat.has_ended:
                await anyio.sleep(0.01)
    assert chat.broke is None
    ends = fleet.logged("subscription.ended")
    assert [line["reason"] for line in ends] == ["newer_version"]
    place = {"Last-Event-ID": chat.last_id}
    async with watching(new_web.url, "c1", headers=place, watcher=chat):
        await chat.until(lambda _: chat.deltas_after_handover > 5)
        await command(new_web.url, "c1", {"type": "abort", "client_request_id": "enough"})
        await chat.at_rest()
    async with watching(new_web.url, "c2") as reference:
        await ask(new_web.url, "c2", "write", f"{ESSAY}&rate=0")
        await reference.at_rest()
    (asked, (_, text)), (question, (_, whole)) = chat.messages, reference.messages
    assert asked == question and whole.startswith(text)
    assert chat.snapshots == 1
