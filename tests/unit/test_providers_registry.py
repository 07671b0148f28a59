"""The mapping of model names to providers."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from threadcast.providers.base import Delta, Finished, ModelInfo, Request
from threadcast.providers.demo.models import Demo
from threadcast.providers.registry import Providers
from threadcast_protocol.wire.errors import ModelFailed

pytestmark = pytest.mark.anyio


class Named:
    """A provider that has only a name; it records that it was closed, or refuses to close."""

    def __init__(self, name: str, models: list[str] | None = None, goodbye: Exception | None = None) -> None:
        self.name = name
        self.is_closed = False
        self._models = models or []
        self._goodbye = goodbye

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield Finished("stop")

    def models(self) -> list[ModelInfo]:
        return [ModelInfo(name=name, context_tokens=1) for name in self._models]

    def samplers(self, model: str) -> frozenset[str]:
        return frozenset()

    def prefills(self, model: str) -> bool:
        return False

    async def aclose(self) -> None:
        if self._goodbye is not None:
            raise self._goodbye
        self.is_closed = True


@pytest.mark.row("PROV-2")
def test_prefix_names_the_provider_and_the_rest_is_the_models_own_name() -> None:
    demo, router = Demo(), Named("router")
    providers = Providers([demo, router])
    assert providers.resolve("router/meta/llama-3") == (router, "meta/llama-3")
    assert providers.resolve("demo/essay?words=5") == (demo, "essay?words=5")


def test_bare_name_goes_to_the_default_provider() -> None:
    demo, local = Demo(), Named("local", ["meta/llama-3"])
    providers = Providers([demo, local], default="local")
    assert providers.resolve("gpt-5") == (local, "gpt-5")
    assert providers.resolve("meta/llama-3") == (local, "meta/llama-3")
    assert Providers([demo, local]).resolve("echo") == (demo, "echo")


@pytest.mark.parametrize("model", ["elsewhere/gpt-5", "demo/", "", "/x"])
def test_unknown_name_fails_with_a_sentence(model: str) -> None:
    with pytest.raises(ModelFailed) as failed:
        Providers([Demo(), Named("local")]).resolve(model)
    assert failed.value.code == "llm_error"
    assert repr(model) in failed.value.message


def test_unknown_provider_names_the_known_ones_and_how_to_add_one() -> None:
    with pytest.raises(ModelFailed, match=r"'elsewhere'.*known: demo, local\. .*OPENAI_API_KEY.*threadcast\.toml"):
        Providers([Named("local"), Demo()]).resolve("elsewhere/gpt-5")


def test_no_provider_at_all_says_how_to_configure_one() -> None:
    with pytest.raises(ModelFailed, match=r"No model provider is configured\. .*OPENAI_API_KEY"):
        Providers([]).resolve("gpt-5")


def test_contradictory_configuration_stops_the_start() -> None:
    with pytest.raises(ValueError, match="two model providers are called 'demo'"):
        Providers([Demo(), Named("demo")])
    with pytest.raises(ValueError, match=r"'gone'.*known: demo"):
        Providers([Demo()], default="gone")


def test_known_models_are_listed_under_their_full_names() -> None:
    infos = Providers([Named("a", ["x"]), Named("b", ["x", "y"])]).model_infos()
    assert {name: info.name for name, info in infos.items()} == {"a/x": "x", "b/x": "x", "b/y": "y"}


async def test_every_provider_is_closed_whatever_the_others_do() -> None:
    last = Named("last")
    async with asyncio.timeout(5):
        await Providers([Named("first", goodbye=OSError("gone")), last]).aclose()
    assert last.is_closed
