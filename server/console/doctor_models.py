"""What `threadcast doctor` finds about one provider of models: is all there that it needs, and does it take the key?

It is asked for its list of models, which costs nothing; of a script the file is read. Vertex AI signs in with the
credentials of the machine; those are tried at the first call and not here. Like all of the doctor, it starts nothing
and never raises.
"""

from typing import NamedTuple

import httpx2

from server.console.doctor_mcp import Verdict
from server.providers.demo.script import read_scenes
from server.providers.extras import missing_extra
from server.providers.lists import list_request
from server.settings import BASE_URLS, OPENAI_API, Provider
from server.settings.store_url import shown_url

__all__ = ["ModelFinding", "model_finding"]


class ModelFinding(NamedTuple):
    verdict: Verdict
    what: str
    text: str


async def model_finding(name: str, provider: Provider, patience_seconds: float) -> ModelFinding:
    what = f"model {name}"
    if command := missing_extra(provider.kind, on_vertex=bool(provider.vertex_project)):
        return ModelFinding("fail", what, f"an extra is missing: {command}")
    if provider.kind == "script":
        try:
            read_scenes(provider.file)
        except ValueError as wrong:
            return ModelFinding("fail", what, str(wrong))
        return ModelFinding("ok", what, f"plays {provider.file}")
    if provider.vertex_project:
        where = f"{provider.vertex_project} in {provider.vertex_location}"
        return ModelFinding("note", what, f"Vertex AI of {where}, with the credentials of this machine; not asked")
    has_to = provider.base_url in (OPENAI_API, *BASE_URLS.values())
    if provider.api_key is None and (provider.api_key_env or has_to):
        missing = provider.api_key_env or "api_key_env, or api_key"
        return ModelFinding("fail", what, f"the key is missing: set {missing}")
    key = provider.api_key.reveal() if provider.api_key is not None else None
    asked = list_request(provider.kind, provider.base_url, key, api_version=provider.api_version)
    assert asked is not None  # a script is the only kind without one
    url = shown_url(asked.url.partition("?")[0])
    try:
        async with httpx2.AsyncClient(timeout=patience_seconds) as http:
            status = (await http.get(asked.url, headers=asked.headers)).status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as wrong:
        return ModelFinding("fail", what, f"{url} does not answer ({type(wrong).__name__})")
    if status in (401, 403):
        return ModelFinding("fail", what, f"{url} refuses the key ({status})")
    if status >= 400:
        return ModelFinding("note", what, f"{url} answers {status}; the server is there, but lists no models")
    return ModelFinding("ok", what, f"{shown_url(provider.base_url)} answers")
