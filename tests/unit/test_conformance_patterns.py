"""Patterns of the transcripts, and the transcripts' files: the tests must notice a check that checks nothing."""

import json
import re
from pathlib import Path

import pytest

from threadcast.console.conformance.patterns import BadPattern, Names, fill, mismatch
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import BadTranscript, load, transcripts_directory
from threadcast_protocol.wire.messages import JsonObject

TRANSCRIPTS = load(transcripts_directory())
ROWS = Path(__file__).resolve().parents[2] / "docs" / "rows.md"


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, "two"], [1, "two"]),
        ({"$any": True}, 0),
        ({"a": {"$absent": True}}, {}),
        ({"a": {"$not": True}}, {}),
        ({"$starts": "he"}, "hello"),
        ({"$contains": "ELL"}, "hello"),
        ({"$matches": "h.*o"}, "h\no"),
        ({"$one_of": [1, {"$type": "string"}]}, "x"),
        ({"$has": [{"id": 2}]}, [{"id": 1}, {"id": 2, "more": 3}]),
        ({"$at_least": 2}, 2),
        ("call ${name}", "call ann"),
    ],
)
def test_a_pattern_means_what_it_says(pattern: object, value: object) -> None:
    assert mismatch(pattern, value, {"name": "ann"}) is None


@pytest.mark.parametrize(
    ("pattern", "value", "words"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "/a/b should be 1, is 2"),
        ({"a": None}, {}, "/a is missing"),
        (1, True, "should be 1, is true"),
        ([1], [1, 2], "should have 1 elements, has 2"),
        ({"a": 1}, [], "should be an object"),
        ({"$any": True}, None, "should be there"),
        ({"$absent": True}, 0, "should be absent"),
        ({"$not": {"$starts": "h"}}, "hello", "should not be"),
        ({"$has": [3]}, [1, 2], "should hold 3"),
        ({"$type": "number"}, True, "should be a number"),
        ("${name}!", "bob!", 'should be "ann!"'),
        ({"$starts": "h", "$contains": "z"}, "hello", "should contain"),
    ],
)
def test_a_mismatch_says_where_and_what(pattern: object, value: object, words: str) -> None:
    assert words in (mismatch(pattern, value, {"name": "ann"}) or "")


def test_a_name_means_the_same_value_from_its_first_place_on() -> None:
    names: Names = {}
    assert mismatch(["$x", "$x"], ["m1", "m1"], names) is None
    assert mismatch("$x", "m2", names) == 'it should be "m1", is "m2"'
    assert fill({"path": "/v1/${x}", "id": "$x", "long": {"$repeat": ["ab", 2]}}, names) == {
        "path": "/v1/m1",
        "id": "m1",
        "long": "abab",
    }
    with pytest.raises(BadPattern, match="not bound"):
        fill("$y", names)
    with pytest.raises(BadPattern, match="no matcher"):
        mismatch({"$sounds_like": "x"}, "x", names)


def test_every_transcript_is_found_and_names_only_rows_that_exist() -> None:
    rows = set(re.findall(r"^- `([A-Z]+-\d+)`", ROWS.read_text(), re.MULTILINE))
    assert len(TRANSCRIPTS) >= 70
    for transcript in TRANSCRIPTS:
        assert set(transcript.rows) <= rows, transcript.name
        assert set(transcript.final) <= set(transcript.chats), transcript.name


def test_every_transcript_requires_the_models_and_tools_that_it_names() -> None:
    for transcript in TRANSCRIPTS:
        text = (transcripts_directory() / f"{transcript.name}.json").read_text()
        models = {f"model:{name}" for name in re.findall(r'"model": "(demo/\w+)', text)}
        assert models <= set(transcript.requires), transcript.name


def test_a_misspelt_key_two_verbs_and_another_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTranscript, match="--transcripts"):
        load(tmp_path)
    wrongs: list[tuple[JsonObject, str]] = [
        ({"finale": {}}, "finale"),
        ({"steps": [{"expect": [], "state": {}}]}, "step 1 must have one of"),
        ({"steps": [{"expect": [], "chat": "other"}]}, "not in chats"),
        ({"name": "other"}, "called like its file"),
    ]
    for wrong, words in wrongs:
        (tmp_path / "one.json").write_text(json.dumps({"name": "one", "about": "", "steps": [], **wrong}))
        with pytest.raises(BadTranscript, match=words):
            load(tmp_path)


def test_model_names_are_translated_wherever_they_stand() -> None:
    target = Target("http://127.0.0.1:9", models={"demo/echo": "test/parrot"})
    command = {"content": "demo/echo", "params": {"model": "demo/echo?rate=0"}, "list": [{"model": "demo/essay"}]}
    assert target.translate(command) == {
        "content": "demo/echo",
        "params": {"model": "test/parrot"},
        "list": [{"model": "demo/essay"}],
    }
