"""Sends commands to a Cluster: each primary has a `Redis`, and each command is sent to the node that has the slot of
its key.

`Cluster` has the interface of `Redis`. A command that is answered with MOVED or ASK did not run, and is sent again to
the node that the answer names. Every other command without a result raises `Unavailable`, as with a single server. When
a node is lost, commands for its slots fail, and commands for other slots continue. The slot map is then read again
until a node serves the lost slots.

docs/decisions/0017 explains why redis-py's own cluster client is not used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Self

import anyio
import structlog
from anyio.abc import TaskStatus

from threadcast.store.ports import Standing
from threadcast.store.redis.channels import SHARDED, Channels
from threadcast.store.redis.command import OnReply
from threadcast.store.redis.connection import LANES, Commands, Redirected, Redis, Reply, ScriptMissing, Value
from threadcast.store.redis.keys import never_of
from threadcast.store.redis.scripts import SHARDED_SCRIPTS
from threadcast.store.topology.cluster_view import ClusterView
from threadcast.store.topology.route import Route
from threadcast.store.topology.slots import NodeName, View, at, slot_of
from threadcast.store.url import parse_cluster_url
from threadcast_protocol.wire.errors import Internal, ThreadcastError, Unavailable

__all__ = ["Cluster", "Node"]

LOOK_SECONDS = 15.0
"""Seconds between reads of the slot map while all nodes work. Only these reads notice added nodes."""

TROUBLED_LOOK_SECONDS = 0.5
"""Seconds between reads of the slot map while a node fails. A promotion is noticed after this time at the latest."""

LOOK_PAUSE_SECONDS = 0.2
"""Minimum seconds between two reads of the slot map. A read costs each node a connection and two cheap commands."""

HOPS_MAX = 3
"""Maximum redirections of one command. A moving slot causes one redirection; more than two redirections mean that the
nodes disagree."""

PING_SECONDS = 0.7
"""Seconds for a node to answer whether it accepts writes. All answers must arrive within the one second of /readyz."""

UNUSED_SECONDS = 30.0
"""Seconds that a node without slots stays connected. While a slot moves to a node, single commands are sent to this
node."""

_SHARDED_WORDS: dict[Value, Value] = {b"PUBLISH": b"SPUBLISH", b"NUMSUB": b"SHARDNUMSUB"}

_log = structlog.get_logger(__name__)


class Node:
    """A primary of the Cluster, with its lanes, its channels, and its present error (`trouble`, "" for none)."""

    def __init__(self, address: NodeName, url: str, lanes: int, on_loss: Callable[["Node"], None]) -> None:
        self.address = address
        self.redis = Redis(Route(url), lanes=lanes, scripts=SHARDED_SCRIPTS)
        self.channels = Channels(self.redis, SHARDED, partial(on_loss, self))
        self.trouble = ""
        self.used_at = asyncio.get_running_loop().time()
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        async with self.redis:
            self.redis.tasks.start_soon(self.channels.run)
            self.opened.set()
            task_status.started()
            await self.closed.wait()


class Cluster(Commands):
    """Sends commands to the nodes of a Cluster. Enter the object once; entering reads the slot map. `ClusterChannels`
    uses `node_of` and `follow`."""

    def __init__(self, url: str, *, lanes: int = LANES) -> None:
        self._url = parse_cluster_url(url)
        self._lanes = lanes
        self._view = ClusterView(self._url)
        self._owners: dict[int, NodeName] = {}
        self._nodes: dict[NodeName, Node] = {}
        self._wanted = asyncio.Event()
        self._followers: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        """Read the slot map and connect. Raises Unavailable when no address answers, Internal when the servers are not
        a Cluster."""
        self._tasks = await anyio.create_task_group().__aenter__()
        try:
            await self._look()
            if not self._owners:
                raise Unavailable("the Cluster of store.url serves no slot; create it with CLUSTER ADDSLOTSRANGE")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._tasks.start_soon(self._look_forever)
        return self

    # the interface for the rest of the store

    def send(self, *command: Value) -> "asyncio.Future[Reply]":
        """Queue a command, like `Redis.send`. The commands that are queued for one node in one tick of the event loop
        form one pipeline."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if command[0] in _SHARDED_WORDS or command[1:2] == (b"NUMSUB",):
            command = tuple(_SHARDED_WORDS.get(word, word) for word in command[:2]) + command[2:]
        self._go(command, answer, HOPS_MAX, self._route(_slot(command)))
        return answer

    async def call(self, name: str, keys: Sequence[bytes], *arguments: Value, on_reply: OnReply | None = None) -> Reply:
        """Run a script on the node of its keys, which share a slot. Raises Unavailable; the script then ran once or not
        at all."""
        script = SHARDED_SCRIPTS[name]
        if keys:
            keys = (*keys, never_of(keys[0]))
        command = (b"EVALSHA", script.sha, len(keys), *keys, *arguments)
        for _ in range(HOPS_MAX):
            try:
                return await self.send(*command)
            except ScriptMissing:
                node = self._route(_slot(command))
                if node is not None:
                    await node.redis.send(b"SCRIPT", b"LOAD", script.source)
        raise Unavailable("the nodes of the store's Cluster forget their scripts")

    async def load_scripts(self) -> None:
        """Load the scripts on every node that answers. The first call of a script loads it on the other nodes. Raises
        Internal when a server is too old."""
        await _of_those_that_answer(node.redis.load_scripts() for node in self._nodes.values())

    async def everyone(self, *command: Value) -> list[Reply]:
        """Return the replies of all nodes that answer. Raises Unavailable when no node answers."""
        replies = await _of_those_that_answer(node.redis.send(*command) for node in self._nodes.values())
        if not replies:
            raise self._unserved()
        return replies

    async def ping(self) -> Standing:
        """Return the addresses of the nodes, and a sentence for each node that accepts no writes. Raises Unavailable
        when no node accepts writes."""
        nodes = list(self._nodes.values())

        async def ask(node: Node) -> str:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await node.redis.call("writable", ())
            except Unavailable as wrong:
                return f"{node.address}: {wrong.message}"
            except TimeoutError:
                return f"{node.address}: no answer within {PING_SECONDS:g} s"
            return ""

        said = await asyncio.gather(*(ask(node) for node in nodes))
        troubles = [trouble for trouble in said if trouble]
        if len(troubles) == len(nodes):
            raise Unavailable("no node of the store's Cluster accepts writes: " + "; ".join(troubles))
        return Standing(nodes=tuple(node.address for node in nodes), away=tuple(troubles))

    # nodes and routes

    def node_of(self, key: bytes) -> Node | None:
        """Return the node that serves a key or channel according to the last slot map."""
        return self._route(slot_of(key))

    def route(self, key: bytes) -> Route:
        """Return the route to the node of this key, for the caller's own connections. Raises Unavailable."""
        node = self.node_of(key)
        if node is None:
            raise self._unserved()
        return node.redis.route

    def follow(self, told: Callable[[], None]) -> None:
        """Call `told` after each later read of the slot map."""
        self._followers.append(told)

    def look_again(self) -> None:
        """Request a new read of the slot map, because an answer suggests that it is out of date."""
        self._wanted.set()

    # one command

    def _route(self, slot: int | None) -> Node | None:
        if slot is None:  # any node that works
            return min(self._nodes.values(), key=lambda node: bool(node.trouble), default=None)
        return self._nodes.get(self._owners.get(slot, ""))

    def _go(self, command: tuple[Value, ...], answer: "asyncio.Future[Reply]", hops: int, node: Node | None) -> None:
        if node is None:
            self.look_again()
            answer.set_exception(self._unserved())
            return
        inner = node.redis.send(*command)
        inner.add_done_callback(partial(self._answered, command, answer, hops, node))

    def _answered(
        self,
        command: tuple[Value, ...],
        answer: "asyncio.Future[Reply]",
        hops: int,
        node: Node,
        inner: "asyncio.Future[Reply]",
    ) -> None:
        wrong = Unavailable("the store is being closed") if inner.cancelled() else inner.exception()
        if answer.done():  # the caller was cancelled
            return
        if wrong is None:
            node.trouble = ""
            answer.set_result(inner.result())
        elif isinstance(wrong, Redirected):
            self.look_again()
            if hops and self._tasks is not None:
                self._tasks.start_soon(self._follow, wrong, command, answer, hops, node)
            else:
                answer.set_exception(Unavailable("the nodes of the Cluster do not agree which of them has a slot"))
        elif isinstance(wrong, Unavailable):
            node.trouble = wrong.message
            self.look_again()
            answer.set_exception(Unavailable(f"{wrong.message}; it is {node.address} of the Cluster"))
        else:
            answer.set_exception(wrong)

    async def _follow(
        self, moved: Redirected, command: tuple[Value, ...], answer: "asyncio.Future[Reply]", hops: int, asked: Node
    ) -> None:
        node: Node | None = None
        try:
            node = await self._open(at(moved.host, moved.port, asked.address))
        finally:
            if node is None and not answer.done():
                answer.set_exception(Unavailable("the store is being closed"))
        if answer.done():
            return
        if moved.is_ask:
            # ASKING applies only to the next command. Both must be adjacent in one pipeline, because otherwise the node
            # would redirect the command again.
            node.redis.send(b"ASKING").add_done_callback(lambda asking: asking.cancelled() or asking.exception())
        else:
            self._owners[moved.slot] = node.address
        self._go(command, answer, hops - 1, node)

    def _unserved(self) -> Unavailable:
        return Unavailable("no node of the store's Cluster serves this chat at the moment")

    # the slot map

    async def _look_forever(self) -> None:
        while True:
            await anyio.sleep(LOOK_PAUSE_SECONDS)
            is_troubled = any(node.trouble for node in self._nodes.values())
            with anyio.move_on_after(TROUBLED_LOOK_SECONDS if is_troubled else LOOK_SECONDS):
                await self._wanted.wait()
            try:
                await self._look()
            except ThreadcastError as wrong:
                _log.warning("cluster.unseen", error=wrong.message)

    async def _look(self) -> None:
        """Read the slot map from the nodes and apply it. Raises Unavailable, Internal."""
        self._wanted.clear()
        view, troubles = await self._view.look(tuple(self._nodes))
        for address, node in self._nodes.items():
            node.trouble = troubles.get(address, "")
        if view.is_ok or not self._owners:
            await self._apply(view)
        for told in self._followers:
            told()

    async def _apply(self, view: View) -> None:
        for address in view.primaries:
            await self._open(address)
        if view.owners != self._owners:
            _log.info("cluster.map", nodes=list(view.primaries), slots=len(view.owners), epoch=view.epoch)
        self._owners = dict(view.owners)
        now = asyncio.get_running_loop().time()
        for node in list(self._nodes.values()):
            if node.address in view.primaries:
                node.used_at = now
            elif node.trouble or now - node.used_at > UNUSED_SECONDS:
                del self._nodes[node.address]
                node.closed.set()  # commands that wait for this node fail now, not at their deadline

    async def _open(self, address: NodeName) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(address, self._url.of(address), self._lanes, self._lost)
            await self.tasks.start(node.run)
        await node.opened.wait()
        return node

    def _lost(self, node: Node) -> None:
        """Handle the loss of the node's channel connection."""
        node.trouble = node.trouble or "its connection was lost"
        self.look_again()


def _slot(command: Sequence[Value]) -> int | None:
    """Return the slot of the command's first key; None for a command that any node may answer."""
    match command:
        case (b"EVALSHA", _, 0, *_) | (b"TIME" | b"SCRIPT", *_):
            return None
        case (b"EVALSHA", _, _, key, *_) | (b"PUBSUB", _, key, *_) | (_, key, *_):
            return slot_of(key if isinstance(key, bytes) else str(key).encode())
    raise Internal(f"{command!r} has no key; a Cluster cannot serve it")


async def _of_those_that_answer(asked: Iterable[Awaitable[Reply]]) -> list[Reply]:
    """Return the replies of all nodes that are available. Errors other than Unavailable are raised."""
    said = await asyncio.gather(*asked, return_exceptions=True)
    for wrong in said:
        if isinstance(wrong, BaseException) and not isinstance(wrong, Unavailable):
            raise wrong
    return [reply for reply in said if not isinstance(reply, BaseException)]
