"""The rules of chats at rest, each switched off (see `mutations.py`): which log is compacted, and by whom if its worker
has ended."""

from tests.sim.rules import Put, Rule
from tests.sim.store import SimStore
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import Compacted, Released

__all__ = ["REST_RULES"]


def _compact_any_head(put: Put) -> None:
    async def compact(self: SimStore, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        return await MemoryStore.compact(self, chat_id, self.chat(chat_id).head, compacted)

    put(SimStore, "compact", compact)


def _leave_to_nobody(put: Put) -> None:
    async def release(
        self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        return await MemoryStore.release(self, chat_id, worker, head, when_ms)

    put(SimStore, "release", release)


def _left_for_once(put: Put) -> None:
    async def left_rests(self: SimStore, bucket: int, limit: int, again_ms: int) -> list[str]:
        left = await MemoryStore.left_rests(self, bucket, limit, again_ms)
        for chat_id in left:
            del self.bucket.rests[chat_id]
        return left

    put(SimStore, "left_rests", left_rests)


REST_RULES = (
    Rule("compact compares the head", "net", _compact_any_head, 1_000),
    Rule("a log whose worker has ended is compacted by another worker", "crash", _leave_to_nobody),
    Rule("a log that was taken over is remembered until it is compacted", "net", _left_for_once, 5_000),
)
