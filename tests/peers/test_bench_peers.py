"""The peers of `bench.peers` that a page would use today answer their first reader and, where they can, a second one: a
measurement of a peer that does not work would favour Threadcast."""

from pathlib import Path

import anyio
import httpx2
import pytest
from bench.peers.ag_ui import AgUi
from bench.peers.ai_sdk import AiSdk
from bench.peers.load import helper
from bench.peers.peer import Cannot, Peer
from bench.peers.reading import Screen
from bench.peers.scripted import prompt

TOKENS = 50
SECONDS = 30.0

pytestmark = pytest.mark.anyio


def test_a_peer_with_one_reader_at_most_refuses_to_be_watched(tmp_path: Path) -> None:
    with pytest.raises(Cannot, match="answer to its request"):
        AgUi(tmp_path, "").watch("one", None, "")


@pytest.mark.parametrize("kind", [AiSdk, AgUi])
async def test_the_readers_of_a_peer_see_the_whole_answer(kind: type[Peer], tmp_path: Path) -> None:
    async with helper("model") as model, httpx2.AsyncClient(timeout=SECONDS) as client:
        peer = kind(tmp_path, f"http://127.0.0.1:{int(await model.line())}")
        try:
            peer.command()
        except Cannot as missing:
            pytest.skip(str(missing))
        screens = [Screen(client)]
        try:
            await peer.start()
            async with anyio.create_task_group() as tasks:
                request = peer.begin("one", prompt("one", TOKENS, 500))
                tasks.start_soon(screens[0].read, peer, request, _never, SECONDS)
                if peer.most_readers > 1:
                    await _can_be_joined(peer, client)
                    screens.append(Screen(client))
                    tasks.start_soon(screens[1].read, peer, peer.watch("one", None, ""), _never, SECONDS)
                await client.post(f"{peer.model_url}/go/one")
        finally:
            peer.close()
    assert [screen.verdict(TOKENS) for screen in screens] == ["exact"] * len(screens)


async def _can_be_joined(peer: Peer, client: httpx2.AsyncClient) -> None:
    """Wait until a second reader can join the answer, which itself waits for /go."""
    with anyio.fail_after(SECONDS):
        while True:
            async with client.stream("GET", peer.url + peer.watch("one", None, "").path) as answer:
                if answer.status_code == 200:
                    return
            await anyio.sleep(0.02)


def _never(_: Screen) -> bool:
    return False
