"""Markers of payloads and suggestions in a model's text: they are found wherever models write them, but not in code."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.agent_loop.answer.markers import Found, cut_out

pytestmark = pytest.mark.row("PAY-3")

ANY = {"CHART": lambda _: True, "CHART_DATA": lambda _: True, "NOTE": lambda _: True}
ONE = '{"a": 1}'


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # A marker alone on its line: the whole line is removed.
        (f"Look.\nCHART: {ONE}\nThere.", "Look.\nThere."),
        (f"Look.\n\nCHART: {ONE}\n\nThere.", "Look.\n\nThere."),
        (f"Look.\n  CHART: {ONE}", "Look."),
        (f"Look.\n**CHART:** {ONE}", "Look."),
        (f"Look.\n**CHART**: {ONE}", "Look."),
        (f"Look.\n**CHART: {ONE}**", "Look."),
        (f"Look.\n__CHART:__ {ONE}", "Look."),
        (f"Look.\n***CHART***: {ONE}", "Look."),
        (f"Look.\n*CHART:*\n\n{ONE}", "Look."),
        (f"Look.\n- CHART: {ONE}\n- more", "Look.\n- more"),
        (f"Look.\n* **CHART:** {ONE}\n  * more", "Look.\n  * more"),
        (f"Look.\n1. CHART: {ONE}", "Look."),
        (f"Look.\n2) CHART: {ONE}", "Look."),
        (f"Look.\n> CHART: {ONE}", "Look."),
        (f"Look.\n>CHART: {ONE}", "Look."),
        (f"Look.\n> - CHART: {ONE}", "Look."),
        (f"Look.\n## CHART: {ONE}", "Look."),
        (f"Look.\n### **CHART:**\n{ONE}\nThere.", "Look.\nThere."),
        (f"Look.\nCHART : {ONE}", "Look."),
        (f"Look.\nCHART：{ONE}", "Look."),
        # The JSON is in a fence or in backticks.
        (f"Look.\nCHART:\n```json\n{ONE}\n```\nThere.", "Look.\nThere."),
        (f"Look.\n## CHART:\n\n~~~\n{ONE}\n~~~\nThere.", "Look.\nThere."),
        (f"Look.\nCHART: `{ONE}` There.", "Look.\nThere."),
        (f"Look.\nCHART: ```json {ONE} ```", "Look."),
        (f"- CHART:\n  ```json\n  {ONE}\n  ```\n- more", "- more"),
        # A marker in the middle of a line: only the marker and its JSON are removed.
        (f"Sales: CHART: {ONE} as you see.", "Sales: as you see."),
        (f"Sales are here: **CHART:** {ONE}.", "Sales are here:."),
        (f"Sales (CHART: {ONE}) rose.", "Sales () rose."),
        (f"- CHART: {ONE} shows it\n- more", "- shows it\n- more"),
        (f"数据CHART: {ONE}", "数据"),
        (f"Look. CHART: {ONE} NOTE: {ONE}\nThere.", "Look.\nThere."),
        (f"CHART: {ONE}", ""),
        # In a list, deep lines are text; after an empty line and outside of a list they are code (below).
        (f"- one\n\n    CHART: {ONE}\n- two", "- one\n\n- two"),
        (f"one\n    CHART: {ONE}\ntwo", "one\ntwo"),
        # After code has ended.
        (f"`a` CHART: {ONE} `b`", "`a` `b`"),
        (f"```\ncode\n```\nCHART: {ONE}", "```\ncode\n```"),
        (f"````\n```\n````\nCHART: {ONE}", "````\n```\n````"),
        (f"A ` alone.\n\nCHART: {ONE}\n\nA ` alone.", "A ` alone.\n\nA ` alone."),
        (f"- a ` alone\n- CHART: {ONE}\n- a ` alone", "- a ` alone\n- a ` alone"),
        (f"\\`CHART: {ONE}`", "\\``"),
        (f"    code\n\ntext\nCHART: {ONE}", "    code\n\ntext"),
        (f"> ```\n> code\n> ```\n> CHART: {ONE}", "> ```\n> code\n> ```"),
        (f"1. ```\n   code\n   ```\n   CHART: {ONE}", "1. ```\n   code\n   ```"),
        (f"- a\n    ```\n    code\n    ```\n- CHART: {ONE}", "- a\n    ```\n    code\n    ```"),
        (f"```\ncode\n   ```\nCHART: {ONE}", "```\ncode\n   ```"),
        # In lists and quotations, the indent counts from the beginning of their content.
        (f"1. one\n   - two\n\n     CHART: {ONE}", "1. one\n   - two"),
        (f"- a\n\n  - b\n\n      CHART: {ONE}", "- a\n\n  - b"),
        (f"> - a\n>\n>     CHART: {ONE}", "> - a\n>"),
        (f"- a\n  > b\n\n    CHART: {ONE}", "- a\n  > b"),
        (f"- a\n  - b\nlazy\n    CHART: {ONE}", "- a\n  - b\nlazy"),
        (f"> a\n    CHART: {ONE}", "> a"),
        (f"===\n    CHART: {ONE}", "==="),
        (f"a\n    # b\n    CHART: {ONE}", "a\n    # b"),
        (f"Look.\n# CHART: {ONE}\n    NOTE: {ONE}\nThere.", "Look.\nThere."),
        # The fence around the JSON is closed by a longer fence, or is open at the end of the text.
        (f"Look.\nCHART:\n```\n{ONE}\n````\nThere.", "Look.\nThere."),
        (f"Look.\nCHART:\n```\n{ONE}\n", "Look."),
        # The remaining lines keep their indent.
        (f"CHART: {ONE}\n\n    code line\n", "    code line"),
        (f"CHART: {ONE}\n\n    NOTE: {ONE}\n", f"    NOTE: {ONE}"),
        (f"    indented first line\n\nCHART: {ONE}\n\nend", "    indented first line\n\nend"),
        (f"\n\n  Sales: CHART: {ONE} as you see.", "  Sales: as you see."),
    ],
)
def test_a_marker_is_found_and_goes_with_what_belongs_to_it(text: str, left: str) -> None:
    cleaned, found = cut_out(text, ANY)
    assert cleaned == left
    assert {each.marker for each in found} <= {"CHART", "NOTE"} and all(each.value == {"a": 1} for each in found)
    assert found and cut_out(cleaned, ANY) == (cleaned, [])


@pytest.mark.parametrize(
    "text",
    [
        # Code is an example.
        f"`CHART: {ONE}`",
        f"Write ``CHART: {ONE}`` like this.",
        f"`one\nCHART: {ONE} two`",
        f"`CHART`: {ONE}",
        f"```\nCHART: {ONE}\n```",
        f"```text\nCHART: {ONE}\n",
        f"~~~\n```\nCHART: {ONE}\n```\n~~~",
        f"````\n```\nCHART: {ONE}\n````",
        f"- one\n  ```\n  CHART: {ONE}\n  ```",
        f"> ```\n> CHART: {ONE}\n> ```",
        f"1. ```\n   CHART: {ONE}\n   ```",
        f"Look.\n\n    CHART: {ONE}\n",
        f"Look.\n\n\tCHART: {ONE}\n\n    NOTE: {ONE}",
        # Lines that do not close a fence.
        f"```\n> ```\nCHART: {ONE}\n```\nrest",
        f"```\n    ```\nCHART: {ONE}\n```\nrest",
        f"```\n\t```\nCHART: {ONE}\n```\nrest",
        f"> ```\n> > ```\n> CHART: {ONE}\n> ```\nrest",
        f"- a\n  ```\n      ```\n  CHART: {ONE}\n  ```",
        f"```\n``` x\nCHART: {ONE}\n```\nrest",
        # The marker is in indented code outside of a paragraph.
        f"- a\n\n          CHART: {ONE}",
        f"- a\n\n      CHART: {ONE}",
        f"-     CHART: {ONE}",
        f"# H\n    CHART: {ONE}",
        f"H\n===\n    CHART: {ONE}",
        f">     CHART: {ONE}",
        f"a\n>     CHART: {ONE}",
        f"> # H\n>     CHART: {ONE}",
        f"```\ncode\n```\n    CHART: {ONE}",
        f"a\n\n---\n    CHART: {ONE}",
        f"* * *\n    CHART: {ONE}",
        # The fence contains more than the JSON.
        f"CHART:\n```json\n{ONE}\n// note\n```\nrest",
        f"CHART:\n```json\n{ONE}\n{ONE}\n```\nrest",
        f"CHART: `{ONE} and` rest",
        # Words that only look like a marker.
        f"MY_CHART: {ONE}",
        f"XCHART: {ONE}",
        f"CHARTS: {ONE}",
        f"chart: {ONE}",
        f"CHART {ONE}",
        f"CHART - {ONE}",
        # No JSON, or incomplete JSON.
        "CHART: 5 of them",
        'CHART: "yes"',
        "CHART: none",
        "CHART:",
        "**CHART:** {a: 1}",
        'CHART: {"a": 1',
        'CHART: {"a": "1}',
        'CHART: {"a": [1}]',
        'CHART: {"a": 01}',
        'CHART: {"a": NaN}',
        "CHART: {'a': 1}",
        'CHART: {"a": "\\ud800"}',
        "CHART: " + "[" * 5_000 + "]" * 5_000,
    ],
)
def test_what_is_code_or_no_marker_stays_as_it_is(text: str) -> None:
    assert cut_out(text, ANY) == (text, [])


def test_a_value_that_its_marker_does_not_promise_stays_with_all_that_is_in_it() -> None:
    wrong = 'CHART: {"b": "NOTE: {} "}'
    text = f"One.\n{wrong}\nCHART:\n```json\n[1]\n```\nNOTE: {ONE}\nTwo."
    cleaned, found = cut_out(text, {"CHART": lambda value: value == {"a": 1}, "NOTE": lambda _: True})
    assert found == [Found("NOTE", {"a": 1})]
    assert cleaned == f"One.\n{wrong}\nCHART:\n```json\n[1]\n```\nTwo."


def test_values_come_in_order_and_the_longest_word_is_the_marker() -> None:
    text = "CHART_DATA: [1]\nthen NOTE: [2] and\nCHART:\n[3,\n 4]\n"
    assert cut_out(text, ANY) == ("then and", [Found("CHART_DATA", [1]), Found("NOTE", [2]), Found("CHART", [3, 4])])


WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="`~"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)
LEADS = st.sampled_from(["", "  ", "- ", "* ", "12. ", "> ", "# ", "### ", "> - "])
EMPHASIS = st.sampled_from([("", ":"), ("**", ":**"), ("**", "**:"), ("__", ":__"), ("*", ":*")])


@given(WORDS, LEADS, EMPHASIS, VALUES, st.sampled_from([None, 2]), st.sampled_from(["", "```json\n", "`"]), WORDS)
def test_whatever_stands_around_a_marker_its_value_is_cut_out_whole_and_nothing_else(
    before: str, lead: str, emphasis: tuple[str, str], value: object, indent: int | None, fence: str, after: str
) -> None:
    opened, closed = emphasis
    written = json.dumps([value], indent=indent)
    closing = fence.replace("json", "").strip() if fence == "`" else "\n```" if fence else ""
    marked = f"{lead}{opened}MARK{closed} {fence}{written}{closing}"
    cleaned, found = cut_out(f"{before}\n\nx\n{marked}\n\ny {after}", {"MARK": lambda _: True})
    assert found == [Found("MARK", [value])]
    assert cleaned.split() == f"{before}\n\nx\n\ny {after}".split()


PIECES = [
    "`",
    "``",
    "```",
    "~~~",
    "\n",
    "\n\n",
    "    ",
    "- ",
    "> ",
    "# ",
    "\\",
    '"',
    "{",
    "}",
    "[1]",
    "[",
    "CHART:",
    "MY_",
]


@given(st.lists(st.sampled_from([*PIECES, "**", "_", "word", 'NOTE: {"x": 1}', "CHART: [2]", ",", "é", "\r\n", "\t"])))
def test_of_any_text_what_is_left_is_the_text_without_what_was_found(pieces: list[str]) -> None:
    text = "".join(pieces)
    cleaned, found = cut_out(text, ANY)
    if not found:
        assert cleaned == text
        return
    assert all(each.marker in ANY for each in found)
    # Every remaining word was in the text in the same order; no word is added.
    rest = iter(text)
    assert all(letter in rest for letter in cleaned if not letter.isspace())


HOSTILE = {
    "markers whose list never ends": "CHART: [",
    "markers whose object never ends": 'CHART: {"a": ',
    "markers in the strings of others": 'CHART: ["',
    "markers with escaped quotes": 'CHART: ["\\"',
    "markers without JSON": "CHART: x",
    "broken values": "CHART: {x} ",
    "well-formed values that fit nothing": "CHART: {} ",
    "accepted values": "NOTE: {}\n",
    "accepted values in one line": "NOTE: {} ",
    "backticks": "` `` CHART: [ ",
    "runs of backticks": "`a``b```c````d CHART: [ ",
    "paragraphs of backticks": "` CHART: [\n\n",
    "bullets": "- ",
    "bullets with markers": "- CHART: {} ",
    "quotations": "> CHART: [\n",
    "spaces": "CHART:        ",
    "emphasis": "**__**CHART:**__**",
    "deep brackets": "CHART: [[[[",
    "fences": "```\nCHART: {}\n",
    "open fences": "CHART:\n```json\n[\n",
    "indented lines": "\n\n    CHART: {}\n",
    "nested quotations": "> ",
    "nested lists": "- a\n" + "  - b\n",
    "broken rules": "- - - x ",
    "numbers": "1. ",
    "stars": "* ",
    "headings": "# CHART: {}\n    CHART: {}\n",
    "code in lists": "- a\n\n          CHART: {}\n",
    "fences with more than JSON": 'CHART:\n```json\n["CHART: `["]\nx',
    "backslashes": "\\`CHART: [\\",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_of_half_a_megabyte_is_read_in_one_pass(piece: str) -> None:
    """An algorithm that reads the whole text once for each marker in it would read 10^10 characters here."""
    text = piece * (500_000 // len(piece)) + f"\n\n{piece}"
    cleaned, found = cut_out(text, {"CHART": lambda _: False, "NOTE": lambda _: True})
    assert len(found) == text.count("NOTE") or "NOTE" not in piece
    assert (cleaned == text) is not bool(found)
