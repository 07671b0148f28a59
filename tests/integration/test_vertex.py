"""Vertex AI, as far as it can be tested without Google: signing in as the machine's service account, and the addresses
of requests."""

import json
from pathlib import Path
from typing import Literal

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from tests.integration.fake_openai import FakeOpenAI, Reply, failure, failure_of
from tests.integration.test_native_adapters import WIRES
from tests.support.server import DEADLINE_SECONDS
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.base import Finished, Request, TextDelta
from threadcast.providers.google.gemini import Google
from threadcast.settings import Models, Provider, Settings
from threadcast.settings import Provider as ProviderSettings
from threadcast.wiring.providers import providers_of
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import Message

pytestmark = pytest.mark.anyio

REQUEST = Request(model="gemini-3-pro", messages=[Message(role="user", content="Hi", message_id="u")])


def service_account(token_uri: str) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    who = {"type": "service_account", "project_id": "mine", "client_email": "us@mine", "private_key_id": "1"}
    return json.dumps({**who, "private_key": pem, "token_uri": token_uri})


@pytest.fixture
def signed_in(fake: FakeOpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeOpenAI:
    """Run the model server, which also signs in the machine's account."""
    credentials = tmp_path / "credentials.json"
    credentials.write_text(service_account(f"{fake.base_url.removesuffix('/v1')}/token"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(credentials))
    return fake


def token(name: str, seconds: int = 3600) -> Reply:
    body = json.dumps({"access_token": name, "expires_in": seconds, "token_type": "Bearer"}).encode()
    return Reply([body], headers={"content-type": "application/json"})


@pytest.mark.row("PROV-2")
async def test_requests_go_to_the_project_with_a_token_of_the_machine(signed_in: FakeOpenAI) -> None:
    fake = signed_in
    url = fake.base_url.removesuffix("/v1")
    wire = WIRES["google"]
    fake.replies = [token("of-the-machine"), Reply([wire.text, wire.stop])]
    provider = Google(
        "g",
        ProviderSettings(
            kind="google", base_url=url, api_version="v1", vertex_project="mine", vertex_location="europe-west4"
        ),
        max_retries=0,
    )
    with anyio.fail_after(DEADLINE_SECONDS):
        deltas = [delta async for delta in provider.stream(REQUEST)]
        assert deltas == [TextDelta("Hel"), Finished("stop")]
        asked = fake.asked[-1]
        model = "projects/mine/locations/europe-west4/publishers/google/models/gemini-3-pro"
        assert asked.path == f"/v1/{model}:streamGenerateContent"
        assert asked.headers["authorization"] == "Bearer of-the-machine"
        fake.replies = [failure(403, {"code": 403, "status": "PERMISSION_DENIED", "message": "no"})]
        with pytest.raises(ModelFailed) as failed:
            await anext(provider.stream(REQUEST))
        assert failed.value.code == "auth_failed"
        await provider.aclose()


CLAUDE = Request(model="claude-sonnet-4-5@20250929", messages=[Message(role="user", content="Hi", message_id="u")])


@pytest.mark.row("OLD-10", "PROV-2")
async def test_claude_is_asked_in_the_project_and_a_token_that_expires_is_fetched_anew(signed_in: FakeOpenAI) -> None:
    fake = signed_in
    wire = WIRES["anthropic"]
    answer = [wire.text, wire.stop]
    # Google's library treats a token as expired some minutes before its expiry, so tokens of one second are expired at
    # once. The SDK treats a token that it has just fetched in the same way.
    fake.replies = [token("unused", 1), token("first", 1), Reply(answer)]
    fake.replies += [token("second", 3600), Reply(answer), Reply(answer)]
    settings = Settings(
        models=Models(
            providers={
                "c": Provider(
                    kind="anthropic", base_url=fake.base_url, vertex_project="mine", vertex_location="europe-west1"
                )
            }
        )
    )
    provider, model = providers_of(settings.models).resolve(f"c/{CLAUDE.model}")
    with anyio.fail_after(DEADLINE_SECONDS):
        for _ in range(3):
            deltas = [delta async for delta in provider.stream(replace(CLAUDE, model=model))]
            assert (deltas[0], deltas[-1]) == (TextDelta("Hel"), Finished("stop"))
        await provider.aclose()
    calls = [asked for asked in fake.asked if asked.path != "/token"]
    assert [asked.headers["authorization"] for asked in calls] == ["Bearer first", "Bearer second", "Bearer second"]
    for asked in calls:
        model_path = "projects/mine/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929"
        assert asked.path == f"/v1/{model_path}:streamRawPredict"
        assert asked.body["anthropic_version"] == "vertex-2023-10-16"
        assert "model" not in asked.body
        assert asked.body["messages"][0]["role"] == "user"
        assert "x-api-key" not in asked.headers


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (failure(403, {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}), "auth_failed"),
        (failure(404, {"code": 404, "status": "NOT_FOUND", "message": "no such model here"}), "llm_error"),
        (failure(429, {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "later"}), "rate_limited"),
    ],
)
async def test_what_vertex_refuses_claude_has_the_usual_codes(reply: Reply, code: str, signed_in: FakeOpenAI) -> None:
    fake = signed_in
    fake.replies = [token("first", 3600), reply]
    provider = Anthropic(
        "c", ProviderSettings(kind="anthropic", base_url=fake.base_url, vertex_project="mine"), max_retries=0
    )
    failed, _ = await failure_of(provider, CLAUDE)
    await provider.aclose()
    assert failed.code == code
    assert fake.asked[-1].path.startswith("/v1/projects/mine/locations/global/")


@pytest.mark.parametrize(("adapter", "kind"), [(Anthropic, "anthropic"), (Google, "google")])
@pytest.mark.parametrize("code", ["auth_failed", "connection"])
async def test_a_machine_without_credentials_or_without_a_sign_in_is_refused_and_says_so_in_the_log(
    adapter: type[Anthropic | Google],
    kind: Literal["anthropic", "google"],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    credentials = tmp_path / "credentials.json"
    if code == "connection":
        credentials.write_text(service_account("http://127.0.0.1:9/token"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(credentials))
    provider = adapter("p", ProviderSettings(kind=kind, vertex_project="mine"), max_retries=0)
    failed, _ = await failure_of(provider, CLAUDE)
    await provider.aclose()
    assert failed.code == code
    assert code == "connection" or "credentials.json" in failed.detail
