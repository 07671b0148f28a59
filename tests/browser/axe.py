"""Checks the accessibility of the page with axe-core."""

import pytest
from playwright.sync_api import Page

from tests.support.server import ROOT

__all__ = ["violations"]

_AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Page) -> list[str]:
    """Returns the violations that axe-core finds: the rule and the elements that break it. Skips the test where
    axe-core is not installed."""
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed; `scripts/web` installs it")
    page.evaluate(_AXE.read_text())
    run = "axe.run(document, {resultTypes: ['violations']})"
    found: list[dict[str, object]] = page.evaluate(
        f"{run}.then(({{violations}}) => violations.map(({{id, impact, nodes}}) => "
        "({id, impact, at: nodes.map((node) => node.target.join(' ') + ' ' + (node.any[0]?.message ?? ''))})))"
    )
    return [f"{one['id']}: {one['at']}" for one in found if one["impact"] in ("serious", "critical")]
