"""The Python client's sender, on a clock that advances with each reading: it forgets no command during a pause."""

import asyncio
from collections import Counter

import anyio

from tests.unit.client_harness import Answer, Server, accepted, refused
from threadcast_client import RetryPolicy, ThreadcastError
from threadcast_client.errors import Refused
from threadcast_client.outbox import MemoryOutbox
from threadcast_client.sender import OutboxSender, held_of
from threadcast_client.wire import Wire
from threadcast_protocol.wire.commands import UserMessage
from threadcast_protocol.wire.messages import JsonObject

CHATS_COUNT = 120
STEP_SECONDS = 0.001
"""The time between two readings of the clock, as on a busy machine, so that a pause may end between them."""


class _SteppingLoop(asyncio.SelectorEventLoop):
    _looks_count = 0

    def time(self) -> float:
        self._looks_count += 1
        return super().time() + self._looks_count * STEP_SECONDS


class _Recipient:
    """Expects the acceptance of every command."""

    def __init__(self, sender_of: dict[str, OutboxSender]) -> None:
        self._sender_of = sender_of
        self.accepted_ids: set[str] = set()
        self.all_accepted = anyio.Event()

    def accepted(self, request_id: str, body: JsonObject) -> None:
        self.accepted_ids.add(request_id)
        self._sender_of[request_id].settle(request_id)
        if len(self.accepted_ids) == CHATS_COUNT:
            self.all_accepted.set()

    def refused(self, request_id: str, wrong: Refused) -> None:
        raise wrong

    def long_done(self, request_id: str) -> None:
        raise AssertionError(request_id)

    def withdrawn(self, request_id: str, *, is_gone: bool) -> None:
        raise AssertionError(request_id)

    def delayed(self, reason: str, seconds: float, *, is_signed_out: bool = False) -> None:
        pass

    def fail(self, wrong: ThreadcastError) -> None:
        raise wrong


async def _post_from_all_chats() -> None:
    refused_count: Counter[object] = Counter()

    def on_post(body: JsonObject) -> Answer:
        refused_count[body["client_request_id"]] += 1
        return accepted() if refused_count[body["client_request_id"]] > 3 else refused(503)

    # Pauses of up to four steps of the clock end before, between and after any two readings by the sender.
    pause_seconds = 4 * STEP_SECONDS
    retry_policy = RetryPolicy(pause_first_seconds=pause_seconds, pause_max_seconds=pause_seconds, answer_seconds=60)
    sender_of: dict[str, OutboxSender] = {}
    recipient = _Recipient(sender_of)
    async with (
        Wire("http://127.0.0.1:1", None, retry_policy, Server(on_post=on_post)) as wire,
        anyio.create_task_group() as tasks,
    ):
        for number in range(CHATS_COUNT):
            request_id = f"r{number}"
            sender = OutboxSender(wire, f"c{number}", MemoryOutbox(), recipient)
            sender_of[request_id] = sender
            sender.put(held_of(f"c{number}", UserMessage(client_request_id=request_id, content="hello")))
            tasks.start_soon(sender.run)
        await recipient.all_accepted.wait()
        tasks.cancel_scope.cancel()


def test_120_chats_that_were_asked_to_wait_all_post_again_however_slow_the_machine_looks_at_its_clock() -> None:
    async def main() -> None:
        with anyio.fail_after(60):  # on a clock that runs ahead of the real one
            await _post_from_all_chats()

    with asyncio.Runner(loop_factory=_SteppingLoop) as runner:
        runner.run(main())
