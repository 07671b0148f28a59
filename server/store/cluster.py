"""The way to a Cluster: one `Redis` for each primary, each command to the node that has its slot.

It does not know what a command means, only where its key stands; the nouns speak to it as to `Redis`. What comes back
as MOVED or ASK did not run and is sent once more, to the node it names; everything else without an answer is
`Unavailable`, as from one server. A node that is lost is nobody else's trouble: the commands of its slots fail, those
of the others go on, and the map is asked for anew until somebody serves its slots.

Why not redis-py's own cluster client: docs/decisions/0017.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from protocol.errors import Internal, ThreadcastError, Unavailable
from server.settings.store_url import parse_cluster_url
from server.store.channels import SHARDED, Channels
from server.store.cluster_view import ClusterView
from server.store.connection import LANES, Redirected, Redis, Reply, ScriptMissing, Value
from server.store.keys import never_of
from server.store.route import Route
from server.store.scripts import SHARDED_SCRIPTS, Script
from server.store.slots import NodeName, View, at, slot_of
from server.store.standing import Standing

__all__ = ["Cluster", "Node"]

LOOK_SECONDS = 15.0
"""Between looks at the map while all is well: for nodes that were added, which nothing else tells us of."""

TROUBLED_LOOK_SECONDS = 0.5
"""While a node is in trouble: a promotion is noticed after this at the latest."""

LOOK_PAUSE_SECONDS = 0.2
"""Between any two looks, whoever asks for one: a look costs each node a connection and two cheap commands."""

HOPS_MAX = 3
"""Redirections of one command. A slot that moves gives one; more than two mean that the nodes disagree."""

PING_SECONDS = 0.7
"""For the answer of one node to whether it takes writes; all of them inside the second that /readyz takes."""

UNUSED_SECONDS = 30.0
"""A node without slots stays connected so long: while a slot moves to it, commands are sent there one by one."""

_SHARDED_WORDS: dict[Value, Value] = {b"PUBLISH": b"SPUBLISH", b"NUMSUB": b"SHARDNUMSUB"}

_log = structlog.get_logger(__name__)


class Node:
    """A primary: its lanes, its channels, and what is wrong with it ("" while nothing is)."""

    def __init__(self, address: NodeName, url: str, lanes: int, on_loss: Callable[["Node"], None]) -> None:
        self.address = address
        self.redis = Redis(Route(url), lanes=lanes)
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


class Cluster:
    """Enter it once; entering asks for the map. Its interface is `connection.Commands`, and `node_of` for channels."""

    def __init__(self, url: str, *, lanes: int = LANES) -> None:
        self._url = parse_cluster_url(url)
        self._lanes = lanes
        self._view = ClusterView(self._url)
        self._owners: dict[int, NodeName] = {}
        self._nodes: dict[NodeName, Node] = {}
        self._wanted = asyncio.Event()
        self._followers: list[Callable[[], None]] = []
        self._tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup:
        """The group of everything that lives as long as the store."""
        if self._tasks is None:
            raise Internal("the store was used outside of its `async with`")
        return self._tasks

    async def __aenter__(self) -> "Cluster":
        """Raises Unavailable when none of the addresses answers, Internal when they are no Cluster."""
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

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self.tasks, None
        tasks.cancel_scope.cancel()
        # As in `Redis`: an error of the body goes on as it is, a cancellation concerns the group.
        if isinstance(wrong, asyncio.CancelledError):
            await tasks.__aexit__(kind, wrong, trace)
        else:
            await tasks.__aexit__(None, None, None)

    # what the rooms say

    def send(self, *command: Value) -> "asyncio.Future[Reply]":
        """As `Redis.send`; the commands of one tick that go to one node are one pipeline there."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if command[0] in _SHARDED_WORDS or command[1:2] == (b"NUMSUB",):
            command = tuple(_SHARDED_WORDS.get(word, word) for word in command[:2]) + command[2:]
        self._go(command, answer, HOPS_MAX, self._route(_slot(command)))
        return answer

    async def call(self, name: str, keys: Sequence[bytes], *arguments: Value) -> Reply:
        """Run a script where its keys are, all of one slot. Raises Unavailable; then it ran once or not at all."""
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

    async def all(self, commands: Sequence[Sequence[Value]]) -> list[Reply]:
        """The replies of commands sent in one tick; the first error is raised after all have answered."""
        results = await asyncio.gather(*(self.send(*command) for command in commands), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def load_scripts(self) -> None:
        """On every node that answers; the others get them with the first call. Raises Internal for too old a server."""
        results = await asyncio.gather(
            *(_load(node, SHARDED_SCRIPTS.values()) for node in self._nodes.values()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Unavailable):
                raise result

    async def everyone(self, *command: Value) -> list[Reply]:
        """Raises Unavailable when nobody answers."""
        asked = [node.redis.send(*command) for node in self._nodes.values()]
        said = await asyncio.gather(*asked, return_exceptions=True)
        for wrong in said:
            if isinstance(wrong, BaseException) and not isinstance(wrong, Unavailable):
                raise wrong
        replies = [reply for reply in said if not isinstance(reply, BaseException)]
        if not replies:
            raise self._unserved()
        return replies

    async def ping(self) -> Standing:
        """Which nodes there are, and which take no writes. Raises Unavailable when none takes any."""
        nodes = list(self._nodes.values())
        script = SHARDED_SCRIPTS["writable"]

        async def ask(node: Node) -> str:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    try:
                        await node.redis.send(b"EVALSHA", script.sha, 0)
                    except ScriptMissing:
                        await node.redis.send(b"SCRIPT", b"LOAD", script.source)
            except Unavailable as wrong:
                return f"{node.address}: {wrong.message}"
            except TimeoutError:
                return f"{node.address}: no answer within {PING_SECONDS:g} s"
            return ""

        said = await asyncio.gather(*(ask(node) for node in nodes))
        troubles = [trouble for trouble in said if trouble]
        if len(troubles) == len(nodes):
            raise Unavailable("no node of the store's Cluster takes writes: " + "; ".join(troubles))
        return Standing(nodes=tuple(node.address for node in nodes), away=tuple(troubles))

    # where things are

    def node_of(self, key: bytes) -> Node | None:
        """Who serves a key or channel now, as far as we know."""
        return self._route(slot_of(key))

    def route(self, key: bytes) -> Route:
        """The way to the node of this key, for connections of the caller's own. Raises Unavailable."""
        node = self.node_of(key)
        if node is None:
            raise self._unserved()
        return node.redis.route

    def follow(self, told: Callable[[], None]) -> None:
        """`told` is called after each look at the map."""
        self._followers.append(told)

    def look_again(self) -> None:
        """Something did not answer as it should: the map may be old."""
        self._wanted.set()

    # one command

    def _route(self, slot: int | None) -> Node | None:
        if slot is None:  # whoever is well
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
        if answer.done():  # its caller was cancelled
            return
        if wrong is None:
            node.trouble = ""
            answer.set_result(inner.result())
        elif isinstance(wrong, Redirected):
            self.look_again()
            if hops and self._tasks is not None:
                self._tasks.start_soon(self._follow, wrong, command, answer, hops, node)
            else:
                answer.set_exception(Unavailable("the nodes of the store's Cluster do not agree who has a slot"))
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
            # Next to each other in one pipeline; were they parted, the command would only be redirected once more.
            node.redis.send(b"ASKING").add_done_callback(lambda asking: asking.cancelled() or asking.exception())
        else:
            self._owners[moved.slot] = node.address
        self._go(command, answer, hops - 1, node)

    def _unserved(self) -> Unavailable:
        return Unavailable("no node of the store's Cluster serves this chat at the moment")

    # the map

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
        """Ask the nodes who serves what, and act on it. Raises Unavailable, Internal."""
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
                node.closed.set()  # what still waits there fails now, not when its time is up

    async def _open(self, address: NodeName) -> Node:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = Node(address, self._url.of(address), self._lanes, self._lost)
            await self.tasks.start(node.run)
        await node.opened.wait()
        return node

    def _lost(self, node: Node) -> None:
        """Its channels have lost their connection."""
        node.trouble = node.trouble or "its connection was lost"
        self.look_again()


def _slot(command: Sequence[Value]) -> int | None:
    """Of the first key; None for a command that any node may answer."""
    match command:
        case (b"EVALSHA", _, 0, *_) | (b"TIME" | b"SCRIPT", *_):
            return None
        case (b"EVALSHA", _, _, key, *_) | (b"PUBSUB", _, key, *_) | (_, key, *_):
            return slot_of(key if isinstance(key, bytes) else str(key).encode())
    raise Internal(f"{command!r} has no key; a Cluster cannot serve it")


async def _load(node: Node, scripts: Iterable[Script]) -> None:
    """Raises Internal when the server does not know our kind of script."""
    try:
        await asyncio.gather(*(node.redis.send(b"SCRIPT", b"LOAD", script.source) for script in scripts))
    except Internal as wrong:
        raise Internal(f"the store must be Redis 7.0 or newer, or Valkey: {wrong.message}") from None
