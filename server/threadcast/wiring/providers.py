"""Builds the providers of models from the settings, and the provider of the operator's agents."""

from collections.abc import Sequence

from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.provider import CustomAgents
from threadcast.providers.base import Provider
from threadcast.providers.demo.models import Demo
from threadcast.providers.demo.script import Script
from threadcast.providers.demo.scripted import Scripted
from threadcast.providers.extras import missing_extra
from threadcast.providers.lists import ModelList, list_request
from threadcast.providers.registry import Providers
from threadcast.settings import BASE_URLS, OPENAI_API, Models, Settings
from threadcast.settings import Provider as ProviderSettings
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["check_model", "check_models", "providers_of"]


def providers_of(models: Models, *, with_demo: bool = False, agents: Sequence[Agent] = ()) -> Providers:
    """Return the configured providers, the provider of `agents`, and, if wanted, the demo provider, which needs no key.
    Raises ValueError: an extra is missing, or two providers have the same name."""
    found = [_provider(name, wanted) for name, wanted in models.providers.items()]
    if with_demo:
        found.append(Demo())
    if agents:
        found.append(CustomAgents(agents))  # the agents come last, since bare model names belong to the first provider
    return Providers(found)


def check_models(settings: Settings, providers: Providers) -> None:
    """Raises ValueError if the settings name a model that no provider serves. Only the models of the demo provider and
    of scripts are known here; for other providers any name is accepted."""
    models = settings.models
    named = [("models.default", models.default), ("models.title", models.title)]
    named += [("models.summarizer", models.summarizer), *(("models.fallback", each) for each in models.fallback)]
    for name, profile in settings.profiles.items():
        path = f"profiles.{name}"
        named += [(f"{path}.model", profile.model), (f"{path}.summarizer", profile.summarizer or "")]
        named += [(f"{path}.fallback", each) for each in profile.fallback or ()]
    for path, model in named:
        check_model(providers, path, model)


def check_model(providers: Providers, path: str, model: str) -> None:
    """Raises ValueError like `check_models`; the error names `path`. '' stands for no model and is accepted."""
    try:
        if model:
            provider, known_as = providers.resolve(model)
            if isinstance(provider, Scripted):
                provider.check(known_as)
    except ModelFailed as wrong:
        raise ValueError(f"{path} = {model!r}: {wrong.message}") from None


def _provider(name: str, wanted: ProviderSettings) -> Provider:
    """Build a provider. Adapters are imported only when they are configured. Raises ValueError if a needed package is
    not installed."""
    if command := missing_extra(wanted.kind, on_vertex=bool(wanted.vertex_project)):
        on_vertex = " on Vertex AI" if wanted.vertex_project else ""
        raise ValueError(
            f"models.providers.{name}: the kind {wanted.kind!r}{on_vertex} needs an extra; install it with `{command}`"
        )
    listing = _listing(name, wanted)
    match wanted.kind:
        case "script":
            return Script(name, wanted.file)
        case "anthropic":
            from threadcast.providers.anthropic.messages import Anthropic

            return Anthropic(name, wanted, listing=listing)
        case "google":
            from threadcast.providers.google.gemini import Google

            return Google(name, wanted, listing=listing)
        case "openai_responses":
            from threadcast.providers.openai.responses import OpenAIResponses

            return OpenAIResponses(name, wanted, listing=listing)
        case "openai_chat":
            from threadcast.providers.openai.chat import OpenAIChat

            return OpenAIChat(name, wanted, listing=listing)


def _listing(name: str, wanted: ProviderSettings) -> ModelList | None:
    """Return the request for the provider's list of models; None if no list is needed. The list is used if the operator
    has named no models, or has not named the program that serves them. Vertex AI offers no list at this path with this
    sign-in, and Google's and Anthropic's own APIs return no list without a key."""
    tells_program = wanted.kind == "openai_chat" and not wanted.program and wanted.base_url != OPENAI_API
    if (
        (wanted.models and not tells_program)
        or wanted.vertex_project
        or (wanted.api_key is None and wanted.base_url in BASE_URLS.values())
    ):
        return None
    key = wanted.api_key.reveal() if wanted.api_key is not None else None
    request = list_request(wanted.kind, wanted.base_url, key, api_version=wanted.api_version)
    return None if request is None else ModelList(name, request)
