"""The providers of models, as configured."""

from server.providers.base import ModelInfo, Prices, Provider
from server.providers.demo import Demo
from server.providers.openai_chat import OpenAIChat
from server.providers.openai_responses import OpenAIResponses
from server.providers.registry import Providers
from server.settings import Models
from server.settings import Provider as ProviderSettings
from server.settings.models import Model as ModelSettings

__all__ = ["providers_of"]


def providers_of(models: Models) -> Providers:
    """The configured ones, and the demonstration that needs no key."""
    return Providers([*(_provider(name, wanted) for name, wanted in models.providers.items()), Demo()])


def _provider(name: str, wanted: ProviderSettings) -> Provider:
    models = [
        ModelInfo(
            name=model.name,
            context_tokens=model.context_tokens,
            supports_tools=model.supports_tools,
            supports_images=model.supports_images,
            supports_audio=model.supports_audio,
            supports_files=model.supports_files,
            streams=model.streams,
            prices=_prices(model),
        )
        for model in wanted.models
    ]
    api_key = wanted.api_key.reveal() if wanted.api_key is not None else None
    if wanted.kind == "openai_responses":
        return OpenAIResponses(
            name,
            base_url=wanted.base_url,
            api_key=api_key,
            models=models,
            connect_timeout_seconds=wanted.connect_timeout_seconds,
            idle_timeout_seconds=wanted.idle_timeout_seconds,
        )
    return OpenAIChat(
        name,
        base_url=wanted.base_url,
        api_key=api_key,
        models=models,
        connect_timeout_seconds=wanted.connect_timeout_seconds,
        idle_timeout_seconds=wanted.idle_timeout_seconds,
        send_reasoning_back=wanted.send_reasoning_back,
    )


def _prices(model: ModelSettings) -> Prices | None:
    if model.price_input is None or model.price_output is None:
        return None
    return Prices(
        input=model.price_input,
        output=model.price_output,
        cache_read=model.price_cache_read,
        cache_write=model.price_cache_write,
    )
