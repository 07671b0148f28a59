"""Tests the parts of the page that need no browser. tests/browser tests the other parts."""

import pytest

from tests.web.installed import APP, node_test


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".test.ts") for path in APP.glob("test/*.test.ts")))
def test_the_parts_of_the_page_do_what_their_tests_say(name: str) -> None:
    node_test(name, room=APP)
