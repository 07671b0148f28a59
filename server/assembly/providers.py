"""The providers of models, as configured."""

from server.providers.base import ModelInfo, Provider
from server.providers.demo import Demo
from server.providers.openai_chat import OpenAIChat
from server.providers.registry import Providers
from server.providers.script import Script
from server.settings import Models
from server.settings import Provider as ProviderSettings

__all__ = ["providers_of"]


def providers_of(models: Models) -> Providers:
    """The configured ones, and the demonstration that needs no key."""
    return Providers([*(_provider(name, wanted) for name, wanted in models.providers.items()), Demo()])


def _provider(name: str, wanted: ProviderSettings) -> Provider:
    match wanted.kind:
        case "script":
            return Script(name, wanted.file)
        case "openai_chat":
            return _openai_chat(name, wanted)


def _openai_chat(name: str, wanted: ProviderSettings) -> OpenAIChat:
    models = [
        ModelInfo(
            name=model.name,
            context_tokens=model.context_tokens,
            supports_tools=model.supports_tools,
            supports_images=model.supports_images,
            supports_audio=model.supports_audio,
            supports_files=model.supports_files,
        )
        for model in wanted.models
    ]
    return OpenAIChat(
        name,
        base_url=wanted.base_url,
        api_key=wanted.api_key.reveal() if wanted.api_key is not None else None,
        models=models,
        connect_timeout_seconds=wanted.connect_timeout_seconds,
        idle_timeout_seconds=wanted.idle_timeout_seconds,
    )
