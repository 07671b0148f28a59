"""The providers of models, as configured."""

from protocol.errors import ModelFailed
from server.providers.base import ModelInfo, Prices, Provider
from server.providers.demo.models import Demo
from server.providers.demo.script import Script
from server.providers.extras import missing_extra
from server.providers.lists import ModelList, list_request
from server.providers.registry import Providers
from server.providers.sdk import Reach
from server.settings import BASE_URLS, OPENAI_API, Models, Settings
from server.settings import Provider as ProviderSettings
from server.settings.models import Model as ModelSettings

__all__ = ["check_model", "check_models", "providers_of"]


def providers_of(models: Models, *, with_demo: bool = False) -> Providers:
    """Return the configured providers and, if wanted, the demonstration, which needs no key. Raises ValueError: an
    extra is missing."""
    found = [_provider(name, wanted) for name, wanted in models.providers.items()]
    return Providers([*found, Demo()] if with_demo else found)


def check_models(settings: Settings, providers: Providers) -> None:
    """Raises ValueError: a model is named that nobody serves. What a server of models has, only it knows, so any name
    goes there; the demonstration's and a script's models are known here."""
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
    """Raises ValueError as `check_models`; the error names `path`. '' stands for no model and passes."""
    try:
        if model:
            provider, known_as = providers.resolve(model)
            if isinstance(provider, Demo | Script):
                provider.check(known_as)
    except ModelFailed as wrong:
        raise ValueError(f"{path} = {model!r}: {wrong.message}") from None


def _provider(name: str, wanted: ProviderSettings) -> Provider:
    """Its adapter is imported when it is configured. Raises ValueError: what it needs is not installed."""
    if command := missing_extra(wanted.kind, on_vertex=bool(wanted.vertex_project)):
        on_vertex = " on Vertex AI" if wanted.vertex_project else ""
        raise ValueError(
            f"models.providers.{name}: the kind {wanted.kind!r}{on_vertex} needs an extra; install it with `{command}`"
        )
    match wanted.kind:
        case "anthropic":
            from server.providers.anthropic.messages import Anthropic

            return Anthropic(
                name,
                prefill=wanted.prefill,
                is_caching=wanted.prompt_caching,
                vertex_project=wanted.vertex_project,
                vertex_location=wanted.vertex_location,
                **_reach(name, wanted),
            )
        case "google":
            from server.providers.google.gemini import Google

            return Google(
                name,
                api_version=wanted.api_version,
                vertex_project=wanted.vertex_project,
                vertex_location=wanted.vertex_location,
                **_reach(name, wanted),
            )
        case "script":
            return Script(name, wanted.file)
        case "openai_responses":
            from server.providers.openai.responses import OpenAIResponses

            return OpenAIResponses(name, **_reach(name, wanted))
        case "openai_chat":
            from server.providers.openai.chat import OpenAIChat

            return OpenAIChat(
                name,
                send_reasoning_back=wanted.send_reasoning_back,
                prefill=wanted.prefill,
                samplers=None if wanted.samplers is None else frozenset(wanted.samplers),
                program=wanted.program,
                **_reach(name, wanted),
            )


def _reach(name: str, wanted: ProviderSettings) -> Reach:
    return {
        "base_url": wanted.base_url,
        "api_key": wanted.api_key.reveal() if wanted.api_key is not None else None,
        "listing": _listing(name, wanted),
        "models": _models(wanted),
        "connect_timeout_seconds": wanted.connect_timeout_seconds,
        "idle_timeout_seconds": wanted.idle_timeout_seconds,
    }


def _listing(name: str, wanted: ProviderSettings) -> ModelList | None:
    """Return the request for the provider's own list of models, which is used when the operator has named no model, or
    has not said which program serves them. Vertex AI offers no list at the same path and sign-in, and Google's and
    Anthropic's own APIs list nothing without a key."""
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


def _models(wanted: ProviderSettings) -> list[ModelInfo]:
    return [
        ModelInfo(
            name=model.name,
            context_tokens=model.context_tokens,
            supports_tools=model.supports_tools,
            supports_images=model.supports_images,
            supports_audio=model.supports_audio,
            supports_files=model.supports_files,
            max_output_tokens=model.max_output_tokens,
            streams=model.streams,
            prices=_prices(model),
            extra_body=model.extra_body,
        )
        for model in wanted.models
    ]


def _prices(model: ModelSettings) -> Prices | None:
    if model.price_input is None or model.price_output is None:
        return None
    return Prices(
        input=model.price_input,
        output=model.price_output,
        cache_read=model.price_cache_read,
        cache_write=model.price_cache_write,
    )
