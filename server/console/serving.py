"""`threadcast serve`, `web` and `worker`: from flags to settings, and then into the house.

The one place that reads the environment for the server. Whatever is wrong with the configuration is said here, before
anything opens, in one line; what is noteworthy about it as well.
"""

import os
import sys
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from server.settings import Provider, Settings
from server.settings.sources import BadSettings, Loaded, load_settings

__all__ = ["find_model", "serve", "web", "worker"]

ASK_SECONDS = 2.0
"""For the list of models of a server that names none. It is near, or its user waits for it anyway."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    """What `GET /models` answers, as far as we read it."""

    data: list[_Model]


def serve(flags: Mapping[str, object], file: str | None) -> int:
    settings = _settings(flags, file)
    from server.app import serve as run

    return run(settings)


def web(flags: Mapping[str, object], file: str | None) -> int:
    settings = _shared(_settings(flags, file), "web")
    from server.app import web as run

    return run(settings)


def worker(flags: Mapping[str, object], file: str | None) -> int:
    settings = _shared(_settings(flags, file), "worker")
    from server.worker import worker as run

    return run(settings)


def _settings(flags: Mapping[str, object], file: str | None) -> Settings:
    loaded = load_settings(os.environ, flags, file)
    for note in loaded.notes:
        print(f"threadcast: {note}", file=sys.stderr)
    return _with_named_model(loaded)


def _shared(settings: Settings, command: str) -> Settings:
    if settings.store.url is None:
        raise BadSettings(
            f"`threadcast {command}` is one half of a server and shares a store with the other: set REDIS_URL. "
            "`threadcast serve` runs both halves with a store of its own"
        )
    return settings


def _with_named_model(loaded: Loaded) -> Settings:
    """A provider without a named model is asked what it serves; most local servers serve one."""
    settings, name = loaded.settings, loaded.unnamed_provider
    if not name:
        return settings
    provider = settings.models.providers[name]
    found = find_model(provider)
    if found is None:
        print(
            f"threadcast: no model of {name} is named and {provider.base_url}/models lists none, so it is asked for "
            f"{settings.models.default.partition('/')[2]!r}; name one by OPENAI_MODEL, models.default or --model",
            file=sys.stderr,
        )
        return settings
    print(f"threadcast: the default model is {name}/{found}, the first one of {provider.base_url}", file=sys.stderr)
    return replace(settings, models=replace(settings.models, default=f"{name}/{found}"))


def find_model(provider: Provider) -> str | None:
    """The first model that the provider lists, or None when it lists none, or nothing in time."""
    import httpx2

    headers = {"Authorization": f"Bearer {provider.api_key.reveal()}"} if provider.api_key else {}
    try:
        answer = httpx2.get(f"{provider.base_url.rstrip('/')}/models", headers=headers, timeout=ASK_SECONDS)
        listed = msgspec.json.decode(answer.content, type=_Models)
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError):
        return None
    return listed.data[0].id if listed.data else None
