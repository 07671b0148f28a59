"""The cost of a model call: by the operator's prices, else by the published prices of a provider in the tables."""

import subprocess
import sys

import pytest

from threadcast.providers.base import Provider
from threadcast.providers.demo.models import Demo
from threadcast.providers.google.gemini import Google
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.providers.prices import with_cost
from threadcast.providers.sdk import VERTEX_URL
from threadcast.settings import Model
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings.models import BASE_URLS
from threadcast_protocol.wire.messages import Usage, add_usage

USAGE = Usage(1_000, 100, 1_100, cache_read_input_tokens=400)
PRICED = Model(name="gpt-4o", price_input=1.0, price_output=10.0, price_cache_read=0.1)
OFFICIAL = OpenAIChat("o", ProviderSettings())


def at(base_url: str, *models: Model) -> Provider:
    return OpenAIChat("p", ProviderSettings(base_url=base_url, models=[*models]))


def test_cost_counts_the_cache_at_its_price_and_sums_without_noise() -> None:
    usage = with_cost(USAGE, at("http://127.0.0.1:1/v1", PRICED), "gpt-4o")
    assert usage.cost_usd == 0.00164
    summed = None
    for _ in range(10):
        summed = add_usage(summed, usage)
    assert summed is not None
    assert summed.cost_usd == 0.0164


@pytest.mark.parametrize(
    ("provider", "model", "cost"),
    [
        pytest.param(OFFICIAL, "gpt-4o", 0.003, id="published"),  # 600 at 2.5, 400 at 1.25, 100 at 10 USD per million
        pytest.param(at("https://api.openai.com/v1", PRICED), "gpt-4o", 0.00164, id="operator"),
        pytest.param(at(BASE_URLS["anthropic"]), "claude-3-opus-20240229", 0.0171, id="other provider"),
        pytest.param(OFFICIAL, "gpt-of-tomorrow", None, id="unknown model"),
        pytest.param(at("http://127.0.0.1:11434/v1"), "gpt-4o", None, id="local server"),
        pytest.param(at("https://localhost/v1"), "gpt-4o", None, id="local server with TLS"),
        pytest.param(at("https://llm.example/v1"), "gpt-4o", None, id="private server"),
        pytest.param(at("https://llm.example/https://api.openai.com"), "gpt-4o", None, id="name in the path"),
        pytest.param(Demo(), "echo", None, id="no model server"),
    ],
)
def test_a_call_costs_what_the_operator_or_the_provider_says_and_a_local_one_nothing(
    provider: Provider, model: str, cost: float | None
) -> None:
    assert with_cost(USAGE, provider, model).cost_usd == cost


def test_impossible_counts_of_tokens_have_no_published_price() -> None:
    assert with_cost(Usage(10, 1, 11, cache_read_input_tokens=20), OFFICIAL, "gpt-4o").cost_usd is None


@pytest.mark.parametrize(
    ("base_url", "price_url"),
    [(BASE_URLS["google"], VERTEX_URL), ("http://127.0.0.1:1", "http://127.0.0.1:1")],
)
def test_vertex_ai_has_published_prices_and_a_server_in_its_place_has_none(base_url: str, price_url: str) -> None:
    provider = Google("g", ProviderSettings(kind="google", base_url=base_url, vertex_project="mine"))
    assert provider.price_url == price_url
    cost = with_cost(USAGE, provider, "gemini-2.5-flash").cost_usd
    assert (cost is None) == (price_url != VERTEX_URL)


def test_a_local_server_loads_no_tables() -> None:
    script = (
        "import sys; from threadcast.providers.public_prices import load_prices; "
        "load_prices('http://127.0.0.1:11434/v1'); print('genai_prices' in sys.modules); "
        "load_prices('https://api.openai.com/v1'); print('genai_prices' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["False", "True"]
