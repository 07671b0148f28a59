"""Holds the configured providers by name, and finds the provider of a model (PROV-2).

A full name is `provider/model`; a bare name belongs to the default provider. The worker builds the providers from the
settings and closes them through this class. The error for an unknown name lists the known names.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import anyio
import structlog
from structlog.typing import FilteringBoundLogger

from threadcast.base.boundary import pass_on
from threadcast.providers.base import UNNAMED_MODEL, ModelInfo, Provider, model_info
from threadcast.providers.demo.scripted import Scripted
from threadcast.providers.listed import Offer
from threadcast.providers.sdk import SdkProvider
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["Providers"]

CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds for closing a provider: sockets close in milliseconds, and an unresponsive server must not delay the
shutdown."""

_HOW_TO_CONFIGURE = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a local server, or add a provider to threadcast.toml."

_log: FilteringBoundLogger = structlog.get_logger()


class Providers:
    """The providers of a worker. `default` names the provider of bare model names; None means the first provider."""

    def __init__(self, providers: Iterable[Provider], *, default: str | None = None) -> None:
        self._by_name: dict[str, Provider] = {}
        for provider in providers:
            if provider.name in self._by_name:
                raise ValueError(f"two model providers are called {provider.name!r}")
            self._by_name[provider.name] = provider
        if default is not None and default not in self._by_name:
            raise ValueError(f"the default model provider {default!r} is not configured; known: {self._known()}")
        self._default = default or next(iter(self._by_name), None)
        self._lists = {
            name: provider.listing
            for name, provider in self._by_name.items()
            if isinstance(provider, SdkProvider) and provider.listing is not None
        }

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @property
    def scripted(self) -> list[str]:
        """Return the names of the providers that call no model: the demonstration and scripts."""
        return [name for name, provider in self._by_name.items() if isinstance(provider, Scripted)]

    async def warm_up(self) -> None:
        """Import the SDKs of the configured providers and open their clients (DESIGN §13)."""
        for provider in self._by_name.values():
            if isinstance(provider, SdkProvider):
                await provider.warm_up()

    def resolve(self, model: str) -> tuple[Provider, str]:
        """Return the provider of a model's full name (`provider/model`), and the name of the model at the provider.

        Raises:
            ModelFailed: llm_error; the provider is unknown, or the name is missing.
        """
        default = self._by_name.get(self._default) if self._default else None
        if default is None:
            raise ModelFailed("llm_error", f"No model provider is configured. {_HOW_TO_CONFIGURE}")
        prefix, slash, name = model.partition("/")
        if not (name if slash else prefix):
            advice = "choose one, or name a default: OPENAI_MODEL, models.default or --model" if not model else ""
            raise ModelFailed("llm_error", f"{model!r} names no model; {advice or 'write it as provider/model'}.")
        if not slash:
            return default, model
        if prefix in self._by_name:
            return self._by_name[prefix], name
        if any(info.name == model for info in default.models()):
            return default, model  # `meta-llama/Llama-3`: a bare name may have a slash of its own
        raise ModelFailed(
            "llm_error",
            f"There is no model provider {prefix!r} (for model {model!r}); known: {self._known()}. {_HOW_TO_CONFIGURE}",
        )

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Fetch and renew the providers' own lists of models while the block runs."""
        async with anyio.create_task_group() as tasks:
            for each in self._lists.values():
                tasks.start_soon(each.keep)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def listed(self) -> None:
        """Request a new list from each provider with an old list. Waits at most `lists.WAIT_SECONDS` for lists that
        were never read."""
        async with anyio.create_task_group() as tasks:
            for each in self._lists.values():
                tasks.start_soon(each.latest)

    def model_infos(self) -> dict[str, ModelInfo]:
        """Return every known model by its full name: for each provider the models that the operator named, else the
        models in the provider's list."""
        return {f"{name}/{info.name}": info for name in self._by_name for info in self._models_of(name)}

    def _models_of(self, name: str) -> list[ModelInfo]:
        return self._by_name[name].models() or self._offer(name).models

    def _offer(self, name: str) -> Offer:
        provider = self._by_name[name]
        return provider.offer if isinstance(provider, SdkProvider) else Offer()

    def samplers(self, model: str | None = None) -> frozenset[str]:
        """Return the samplers (of `threadcast.chat.params.SAMPLERS`) that are sent to the model of this full name, as
        far as they are known now; without a name, the samplers that are sent to any of the models."""
        if model is not None:
            provider, _, name = model.partition("/")
            return self._by_name[provider].samplers(name) if provider in self._by_name else frozenset()
        found = [provider.samplers("") for provider in self._by_name.values()]
        return frozenset().union(*found, *(self.samplers(each) for each in self.model_infos()))

    def named(self, model: str) -> str:
        """Return `model`, with the first model of the provider's list in place of `UNNAMED_MODEL`."""
        provider, _, name = model.partition("/")
        if name != UNNAMED_MODEL or provider not in self._by_name:
            return model
        offered = [info.name for info in self._offer(provider).models]
        return f"{provider}/{offered[0]}" if offered and UNNAMED_MODEL not in offered else model

    def window_tokens(self, model: str) -> int | None:
        """Return the size of a model's context in tokens, by its full name; None when neither the operator nor a list
        names it."""
        provider, _, name = model.partition("/")
        if provider not in self._by_name:
            return None
        info = model_info(self._by_name[provider], name)
        return self._offer(provider).windows.get(name) if info is None else info.context_tokens

    async def aclose(self) -> None:
        """Close every provider, within `CLOSE_TIMEOUT_SECONDS` each, even if others fail."""
        for name, provider in self._by_name.items():
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await provider.aclose()
            except BaseException as wrong:  # boundary: a failure to close one provider must not keep the others open
                pass_on(wrong)
                _log.warning("provider.close_failed", provider=name, error=type(wrong).__name__)

    def _known(self) -> str:
        return ", ".join(sorted(self._by_name)) or "none"
