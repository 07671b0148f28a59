"""The rules of chats at rest, each switched off (see `mutations.py`): which log is compacted, and by whom if its worker
has ended."""

from tests.sim.rules import Put, Rule
from tests.sim.store import SimStore
from threadcast.actor import rests
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import Compacted

__all__ = ["REST_RULES"]


def _compact_any_head(put: Put) -> None:
    async def compact(
        self: SimStore, chat_id: str, head: str, compacted: Compacted | None, due_ms: int, when_ms: int | None
    ) -> bool:
        return await MemoryStore.compact(self, chat_id, self.chat(chat_id).head, compacted, due_ms, when_ms)

    put(SimStore, "compact", compact)


def _forget_what_came(put: Put) -> None:
    async def compact(
        self: SimStore, chat_id: str, head: str, compacted: Compacted | None, due_ms: int, when_ms: int | None
    ) -> bool:
        is_done = await MemoryStore.compact(self, chat_id, head, compacted, due_ms, when_ms)
        if is_done and chat_id not in self.bucket.own:
            self.bucket.due.pop(chat_id, None)
        return is_done

    put(SimStore, "compact", compact)


def _leave_to_nobody(put: Put) -> None:
    put(rests, "due_of", lambda when_ms, left_ms: when_ms)


REST_RULES = (
    Rule("compact compares the head", "net", _compact_any_head, 1_000),
    Rule("compact removes only the time that the release has set", "net", _forget_what_came, 3_000),
    Rule("a log whose worker has ended is compacted by another worker", "crash", _leave_to_nobody),
)
