"""The runner of pages finds commands and their output, and sees a difference."""

import pytest

from tests.examples.console import Step, differs, steps_of

PAGE = """
Text.

```console
$ ./scripts/run --config a.toml
```

```console
$ curl -s x \\
    -d y
one
two …
$ true
$ curl y -d '{"a": 1,
    "b": 2}'
three
```

```sh
$ not run
```
"""


def test_the_commands_of_a_page_come_with_what_they_print() -> None:
    assert steps_of(PAGE) == [
        Step("./scripts/run --config a.toml", ""),
        Step("curl -s x \\\n    -d y", "one\ntwo …"),
        Step("true", ""),
        Step('curl y -d \'{"a": 1,\n    "b": 2}\'', "three"),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("one\ntwo …", "one\n\ntwo 2\n", True),
        ("one", "one\ntwo", False),
        ("one\ntwo", "one", False),
        ("a … c", "a b c", True),
        ("a … c", "a b d", False),
        ("first\n…\nlast", "first\nx\ny\nlast\n", True),
        ("first\n…", "first\nx", True),
        ("first\n…\nlast", "first\nx", False),
        ("", "", True),
    ],
)
def test_a_difference_is_seen(expected: str, printed: str, same: bool) -> None:
    assert (differs(expected, printed) == "") is same
