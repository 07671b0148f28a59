"""Vertex AI as far as it goes without Google: signing in as the machine's service account, and where requests go."""

import json
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from protocol.errors import ModelFailed
from protocol.messages import Message
from server.providers.base import Finished, Request, TextDelta
from server.providers.google.gemini import Google
from tests.integration.fake_openai import Reply, failure, serve_fake_openai
from tests.integration.test_native_adapters import WIRES

pytestmark = pytest.mark.anyio

REQUEST = Request(model="gemini-3-pro", messages=[Message(role="user", content="Hi", message_id="u")])


def service_account(token_uri: str) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    who = {"type": "service_account", "project_id": "mine", "client_email": "us@mine", "private_key_id": "1"}
    return json.dumps({**who, "private_key": pem, "token_uri": token_uri})


@pytest.mark.row("PROV-2")
async def test_requests_go_to_the_project_with_a_token_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_fake_openai() as fake:
        url = fake.base_url.removesuffix("/v1")
        credentials = tmp_path / "credentials.json"
        credentials.write_text(service_account(f"{url}/token"))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(credentials))
        token = json.dumps({"access_token": "of-the-machine", "expires_in": 3600, "token_type": "Bearer"}).encode()
        wire = WIRES["google"]
        fake.replies = [Reply([token], headers={"content-type": "application/json"}), Reply([wire.text, wire.stop])]
        provider = Google(
            "g", base_url=url, api_version="v1", vertex_project="mine", vertex_location="europe-west4", max_retries=0
        )
        with anyio.fail_after(20):
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


async def test_machine_without_credentials_is_refused_and_says_so_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    provider = Google("g", vertex_project="mine", max_retries=0)
    with anyio.fail_after(20), pytest.raises(ModelFailed) as failed:
        await anext(provider.stream(REQUEST))
    await provider.aclose()
    assert failed.value.code == "auth_failed"
    assert "nothing.json" in failed.value.detail
