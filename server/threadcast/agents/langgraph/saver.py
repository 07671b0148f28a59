"""A checkpointer whose checkpoints are private values of the run, so that finished nodes do not run again.

The checkpointer keeps the newest checkpoint of the graph and of each running subgraph, with the writes of the nodes
that have finished since. Older checkpoints are not needed, because a chat returns to earlier states by its own
branches.
"""

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)

from threadcast.custom_agents.seam import Seam
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["KEY", "RESUME", "JournalSaver", "Stored"]

KEY = "checkpoints"

INTERRUPT, RESUME = "__interrupt__", "__resume__"
"""The channels in which LangGraph records the questions of a node and the answers to them (langgraph.constants).
"""

Typed = tuple[str, str]
"""A value written by the framework's serializer: the type, and the bytes as base64."""


class Stored(msgspec.Struct):
    """The newest checkpoint of a namespace, the writes since (by task and index: channel, value, path), and the ids of
    the interrupts that have been answered since."""

    checkpoint_id: str
    checkpoint: Typed
    metadata: Typed
    parent_id: str | None = None
    writes: dict[str, dict[str, tuple[str, Typed, str]]] = {}
    answered: list[str] = []


class JournalSaver(BaseCheckpointSaver[int]):
    """`kept` is the state that an earlier run of the chat stored (`packed`), or b'' if there is none."""

    def __init__(self, seam: Seam, kept: bytes = b"") -> None:
        super().__init__()
        self._seam = seam
        self._stored: dict[str, Stored] = {}
        self._order = asyncio.Lock()
        if kept:
            self._stored = msgspec.json.decode(zlib.decompress(kept), type=dict[str, Stored])

    async def load(self) -> bool:
        """Load the records that the run made before a crash or a pause. Returns False if there are no records."""
        recorded = await self._seam.get(KEY)
        if recorded is None:
            return False
        self._stored = msgspec.convert(recorded, dict[str, Stored])
        return True

    def packed(self) -> bytes:
        """Return the state of the graph for the next run, compressed."""
        if "" not in self._stored:
            return b""
        lasting = {
            name: Stored(each.checkpoint_id, each.checkpoint, each.metadata)
            for name, each in self._stored.items()
            if ":" not in name
        }
        return zlib.compress(msgspec.json.encode(lasting))

    def is_answered(self, interrupt_id: str) -> bool:
        """Return whether a node has received the answer to this interrupt. The graph above the node may still wait for
        the answer, because the two states are recorded one after the other."""
        return any(interrupt_id in stored.answered for stored in self._stored.values())

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        configurable = config["configurable"]
        namespace = configurable.get("checkpoint_ns", "")
        stored, wanted = self._stored.get(namespace), get_checkpoint_id(config)
        if stored is None or (wanted and wanted != stored.checkpoint_id):
            return None

        def config_of(checkpoint_id: str) -> RunnableConfig:
            ids = {"thread_id": configurable["thread_id"], "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
            return {"configurable": ids}

        return CheckpointTuple(
            config=config_of(stored.checkpoint_id),
            checkpoint=self._loaded(stored.checkpoint),
            metadata=self._loaded(stored.metadata),
            parent_config=config_of(stored.parent_id) if stored.parent_id else None,
            pending_writes=[
                (task_id, channel, self._loaded(value))
                for task_id, writes in stored.writes.items()
                for channel, value, _ in writes.values()
            ],
        )

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield only the newest checkpoint."""
        found = await self.aget_tuple(config) if config is not None and before is None else None
        if found is not None:
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        configurable = config["configurable"]
        namespace = configurable.get("checkpoint_ns", "")
        if not namespace:  # subgraphs of the step before have ended, unless they keep a state of their own
            self._stored = {name: each for name, each in self._stored.items() if name and ":" not in name}
        self._stored[namespace] = Stored(
            checkpoint["id"], self._dumped(checkpoint), self._dumped(metadata), configurable.get("checkpoint_id")
        )
        await self._record()
        ids = {"thread_id": configurable["thread_id"], "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}
        return {"configurable": ids}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        stored = self._stored.get(config["configurable"].get("checkpoint_ns", ""))
        if stored is None:
            return
        of_task = stored.writes.setdefault(task_id, {})
        if any(channel == RESUME for channel, _ in writes) and (asked := of_task.get(str(WRITES_IDX_MAP[INTERRUPT]))):
            stored.answered += [each.id for each in self._loaded(asked[1])]
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            if index < 0 or str(index) not in of_task:
                of_task[str(index)] = (channel, self._dumped(value), task_path)
        await self._record()

    async def _record(self) -> None:
        """Record the present state. Records are written in order, so an earlier record never replaces a later one.
        Raises ModelFailed: the state is too large."""
        async with self._order:
            try:
                await self._seam.put(KEY, msgspec.to_builtins(self._stored))
            except ValueError as wrong:
                raise ModelFailed("limit", f"The state of the graph is too large to be kept: {wrong}.") from None

    def _dumped(self, value: Any) -> Typed:  # Any: what nodes write
        kind, data = self.serde.dumps_typed(value)
        return kind, base64.b64encode(data).decode()

    def _loaded(self, value: Iterable[str]) -> Any:  # Any: what nodes have written
        kind, data = value
        return self.serde.loads_typed((kind, base64.b64decode(data)))


def loads(saver: JournalSaver, value: JsonObject) -> Any:  # Any: what `dumps` was given
    """Return a value that `dumps` has written."""
    return saver._loaded((value["type"], value["data"]))


def dumps(saver: JournalSaver, value: Any) -> JsonObject:  # Any: a message or a command
    """Return a value of the framework as JSON."""
    kind, data = saver._dumped(value)
    return {"type": kind, "data": data}
