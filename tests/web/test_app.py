"""The page's parts that need no browser: how it splits, groups, compares and words things. What it shows: tests/browser."""

import pytest

from tests.web.installed import APP, node_test


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".test.ts") for path in APP.glob("test/*.test.ts")))
def test_the_parts_of_the_page_do_what_their_tests_say(name: str) -> None:
    node_test(name, room=APP)
