"""The context of a durable agent: the inputs of its run, and the operations that are recorded in the chat's log.

After a crash, a pause or a deploy the function runs again from the top, and every operation that the log holds returns
its recorded result. Therefore everything outside the operations must be deterministic: the function may not read a
clock, a file or a random number except through the context.
"""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar, Unpack

from threadcast.custom_agents.rounds import RunInputs
from threadcast.custom_agents.seam import Seam
from threadcast.tools.chats import ChildResult, ChildWish
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["AgentContext", "Inputs", "Operations", "StepRetry"]

StepRetry = Literal["once", "idempotent", "safe"]
"""Whether a step may run again after its worker died during it: `once` means no, `idempotent` means yes with the same
`ctx.step_key`, `safe` means always. These values have the same meaning as those of the tools' `retry`."""

_T = TypeVar("_T")


class Inputs(RunInputs, frozen=True, kw_only=True):
    """The inputs of a run: everything that is known when it begins. `messages`, `params` and `context` keep their
    values of that moment, even if the chat changes afterwards."""

    state: Any = None  # Any: JSON of the operator


class Operations(Protocol):
    """The operations behind an `AgentContext`, which the agent loop implements."""

    async def step(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: JsonObject, retry: StepRetry
    ) -> Any: ...
    async def call(self, name: str, args: JsonObject) -> Any: ...
    async def run_chat(self, prompt: str, wish: ChildWish) -> ChildResult: ...
    async def ask(self, text: str, options: Sequence[str], schema: JsonObject | None) -> Any: ...
    async def sleep(self, seconds: float) -> None: ...
    async def answer(self, written: Any, args: Sequence[Any], kwargs: JsonObject) -> str: ...
    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]: ...
    async def first(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> tuple[int, Any]: ...
    async def steered(self) -> list[Message]: ...
    async def restart(self, state: Any) -> None: ...
    def now(self) -> datetime: ...
    def random(self) -> float: ...
    def new_id(self) -> str: ...
    def version(self, name: str) -> bool: ...
    def step_key(self) -> str: ...
    @property
    def seam(self) -> Seam: ...


class _Chats:
    """The sub-chats of a durable agent."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def run(self, prompt: str, **wish: Unpack[ChildWish]) -> ChildResult:
        """Run a sub-chat with `prompt` and return its end. While the agent waits, it holds no worker. At most 16
        sub-chats run at once; further branches wait.

        Raises:
            CallFailed: the sub-chat is nested too deep, or its mode, prompt or parameters are invalid.
        """
        return await self._operations.run_chat(prompt, wish)


class AgentContext:
    """The argument of a durable agent's function. Only the agent's own function and the branches of `gather` and
    `first` may call the methods: in any other task, or inside a step, the methods raise RuntimeError.

    `messages` is the path of the chat at the beginning of the run; `params` and `context` are the parameters and the
    request context of the same moment. `principal` is the person whose command began the run. `tools` and `system` are
    the tools and the prompt that a model would get now; they may differ in a replay. `state` is the value that the last
    `restart` passed; None before the first `restart`.
    """

    def __init__(self, inputs: Inputs, operations: Operations) -> None:
        self.chat_id = inputs.chat_id
        self.run_id = inputs.run_id
        self.messages = inputs.messages
        self.system = inputs.system
        self.tools = inputs.tools
        self.params = inputs.params
        self.context = inputs.context
        self.metadata = inputs.metadata
        self.principal = inputs.principal
        self.state = inputs.state
        self.chats = _Chats(operations)
        self._operations = operations

    async def step(
        self, name: str, function: Callable[..., Any], *args: Any, retry: StepRetry = "once", **kwargs: Any
    ) -> Any:  # Any: what the function returns
        """Run `function(*args, **kwargs)` once, and return its result, also in every replay. Sync functions run in a
        thread. The result must be JSON, a dataclass, a `msgspec.Struct` or a pydantic model; it is decoded by the
        function's return annotation, and may have at most 16 MB.

        Raises:
            StepFailed: the function raised an exception.
            OutcomeUnknown: the worker died during the step, and the step may not run twice.
        """
        return await self._operations.step(name, function, args, kwargs, retry)

    async def call(self, name: str, args: JsonObject | None = None) -> Any:  # Any: what the tool returns
        """Call an offered tool under its policy, deadline and approval, and return its value: JSON if the tool returned
        JSON, else its text. A call that waits for a person or a client holds no worker.

        Raises:
            CallFailed: the tool failed, or there is no such tool.
            CallDenied: a person or a policy denied the call.
            OutcomeUnknown: the worker died during the call, and the tool may not run twice.
        """
        return await self._operations.call(name, args or {})

    async def ask(
        self, text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None
    ) -> Any:  # Any: JSON that fits the question
        """Ask the people in the chat, and return the answer: one of `options`, a value that fits the JSON Schema
        `schema`, or a text. While the agent waits, it takes no worker and no memory.

        Raises:
            Rejected: the person declined to answer.
        """
        return await self._operations.ask(text, options, schema)

    async def sleep(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Wait for the sum of these times. While the agent sleeps, it takes no worker and no memory."""
        await self._operations.sleep(seconds + 60 * minutes + 3_600 * hours + 86_400 * days)

    async def answer(self, written: Any, *args: Any, **kwargs: Any) -> str:
        """Write an answer into the chat and return its text. `written` is a text, or a function that is called with the
        arguments. The function is a generator of pieces (async or not), or returns pieces. A finished answer is not
        written again.

        After a crash the function is called again for an unfinished answer. While the function writes the text that
        people have already seen, nothing is sent; at the first difference the answer is removed and begins anew. A
        function with a keyword parameter `shown` gets the text that people have seen, and continues after it.

        Raises:
            StepFailed: the function raised an exception; the text that it had written remains.
        """
        return await self._operations.answer(written, args, kwargs)

    async def gather(self, *coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run these operations or functions at the same time, wait for all, and return their results in order. Raises
        the error of the first failed coroutine, in the order of the arguments."""
        return await self._operations.gather(coroutines)

    async def first(self, *coroutines: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
        """Run these operations or functions at the same time until one of them has ended, cancel the others, and return
        the index and the result of the operation that has ended. If that operation failed, raises its error."""
        return await self._operations.first(coroutines)

    async def steered(self) -> list[Message]:
        """Take the messages that people have sent with priority since the run began, add them to the chat, and return
        them. Messages that are not taken wait in the queue until the run has ended."""
        return await self._operations.steered()

    async def restart(self, state: Any) -> None:  # Any: JSON
        """Begin again from the top with an empty journal; `ctx.state` is then `state`. Use this method in agents that
        run without end, because their journal would otherwise grow beyond its limit. Does not return."""
        await self._operations.restart(state)

    def now(self) -> datetime:
        """Return the time in UTC; a replay returns the same time."""
        return self._operations.now()

    def random(self) -> float:
        """Return a random number from 0 to 1 (exclusive); a replay returns the same number."""
        return self._operations.random()

    def new_id(self) -> str:
        """Return a new random id; a replay returns the same id."""
        return self._operations.new_id()

    def version(self, name: str) -> bool:
        """Return whether the code already contained this call of `version(name)` when the run first reached it. Returns
        False for a run whose journal already continues beyond this line, so that changed code can keep its old
        behaviour for old runs."""
        return self._operations.version(name)

    @property
    def step_key(self) -> str:
        """An id of the running step, which is the same at each repetition of the step. Use it as an idempotency key for
        other services."""
        return self._operations.step_key()

    @property
    def seam(self) -> Seam:
        """The operations for integrations of agent frameworks (`threadcast.agents`)."""
        return self._operations.seam
