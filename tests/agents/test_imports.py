"""Checks that each framework is imported by its integration alone, and each integration only when an operator uses
it."""

import subprocess
import sys

import pytest

from tests.support.server import ROOT

FRAMEWORKS = ("acp", "ag_ui", "agents", "jsonpatch", "langchain_core", "langgraph", "pydantic", "pydantic_ai")

EXTRAS = {
    "langgraph": ("langgraph", "langgraph"),
    "ag_ui": ("jsonpatch", "ag-ui"),
    "openai_agents": ("agents", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
}
"""Maps each integration to the package that it needs and the extra that installs the package."""


def run(code: str) -> str:
    line = [sys.executable, "-c", code]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.row("AGT-6", "AGT-7", "AGT-8", "AGT-10")
def test_a_server_without_such_agents_imports_no_framework() -> None:
    code = f"""
import sys
import threadcast, threadcast.cli
from threadcast.settings import Settings
from threadcast.wiring.components import build_components
build_components(Settings())
ours = [name for name in sys.modules if name.startswith("threadcast.agents")]
print(sorted(set({FRAMEWORKS!r}) & set(sys.modules)), ours)
"""
    found = run(code)
    # The SDK of OpenAI, which the server needs for models, is written with pydantic.
    assert found.replace("'pydantic'", "").strip() == "[] []", found


@pytest.mark.parametrize("integration", EXTRAS)
def test_a_missing_framework_is_told_with_the_extra_that_installs_it(integration: str) -> None:
    package, extra = EXTRAS[integration]
    code = f"""
import sys
sys.modules[{package!r}] = None
try:
    import threadcast.agents.{integration}
except ImportError as wrong:
    print(wrong)
"""
    assert f"pip install 'threadcast[{extra}]'" in run(code)
