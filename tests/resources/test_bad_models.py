"""Models that never end: a bound stops each model, the chat reports the bound, and other chats are not affected.

Bounds: characters and calls of an answer, bytes of an event, silence, and the time of a whole answer.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.resources.bad_models import BadModels, bad_models
from tests.resources.measures import PeakMemory, eventually
from tests.support.reader import Watcher, watching
from tests.support.server import Process, command, serving, user_message
from threadcast.agent_loop.answer.assembler import ANSWER_MAX_CHARACTERS, ARGUMENTS_MAX_CHARACTERS, CALLS_MAX_COUNT
from threadcast.providers.sse_split import EVENT_MAX_BYTES

pytestmark = pytest.mark.anyio

CONFIG = """
[models]
default = "bad/endless"
demo = true

[models.providers.bad]
kind = "openai_chat"
models = [{{ name = "endless" }}]  # it has no list of its own
base_url = "{base_url}"
api_key = "none"
idle_timeout_seconds = 1.0

[limits]
answer_timeout_seconds = 6.0
"""


@pytest.fixture
async def models() -> AsyncIterator[BadModels]:
    async with bad_models() as running:
        yield running


@pytest.fixture
async def server(models: BadModels, tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path, config=CONFIG.format(base_url=models.base_url)) as process:
        yield process


async def ask(server: Process, models: BadModels, model: str) -> tuple[Watcher, PeakMemory]:
    """Ask the model, and wait until the run has ended and the connection to the model is closed."""
    async with watching(server.url, model) as watcher:
        peak = PeakMemory(server.pid)
        await command(server.url, model, user_message("a", "speak", params={"model": f"bad/{model}"}))
        await watcher.at_rest()

    async def has_left() -> bool:
        return model in models.has_left

    await eventually(has_left)
    return watcher, peak


def trouble_of(watcher: Watcher) -> tuple[str, str]:
    """Return the run's outcome and its error text. Both come from the folded state, which may be a snapshot if the
    reader missed events in a burst."""
    assert watcher.state is not None
    runtime = watcher.state.runtime
    return str(runtime.outcome), runtime.error or ""


async def test_each_bad_model_is_stopped_by_its_bound(server: Process, models: BadModels) -> None:
    expected = {
        "silent": ("went silent", 60_000_000),  # the first call, during which the SDK is still imported
        "endless": (f"more than {ANSWER_MAX_CHARACTERS} characters", 60_000_000),
        "endless-thoughts": (f"more than {ANSWER_MAX_CHARACTERS} characters", 60_000_000),
        "calls": (f"more than {CALLS_MAX_COUNT} calls", 40_000_000),
        "arguments": (f"more than {ARGUMENTS_MAX_CHARACTERS} characters of arguments", 40_000_000),
        "one-line": ("could not be read", 6 * EVENT_MAX_BYTES),
        "dripping": ("did not finish within 6 s", 40_000_000),
    }
    for model, (words, growth_max_bytes) in expected.items():
        watcher, peak = await ask(server, models, model)
        outcome, sentence = trouble_of(watcher)
        print(f"{model}: {peak.growth_bytes / 1e6:.1f} MB for {models.sent_bytes[model] / 1e6:.1f} MB sent")
        assert outcome != "complete", model
        assert words in sentence, (model, sentence)
        assert peak.growth_bytes < growth_max_bytes, model
    async with watching(server.url, "others") as other:
        await command(server.url, "others", user_message("a", "all well?", params={"model": "demo/echo"}))
        await other.at_rest()
        assert other.messages[1] == ("assistant", "You said: all well?")
