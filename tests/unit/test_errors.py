"""The tree of errors: every code is in the closed set, and msgspec's sentences become paths in a body."""

from collections.abc import Iterator

import msgspec
import pytest

from threadcast_protocol.wire import errors
from threadcast_protocol.wire.errors import CODES, Failed, ModelFailed, Refused, ThreadcastError, explain


def _tree(root: type[ThreadcastError]) -> Iterator[type[ThreadcastError]]:
    yield root
    for branch in root.__subclasses__():
        yield from _tree(branch)


OURS = [error for error in _tree(ThreadcastError) if error.__module__ == errors.__name__]


@pytest.mark.row("ERR-1")
@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_every_error_has_a_code_of_the_closed_set_and_stands_in_the_drawn_tree(error: type[ThreadcastError]) -> None:
    assert error.code in CODES
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__
    assert error.__name__ in errors.__all__


def test_every_error_is_the_callers_or_ours() -> None:
    assert [error for error in OURS if not issubclass(error, Refused | Failed)] == [ThreadcastError]


def test_no_two_refusals_share_a_code() -> None:
    codes = [error.code for error in OURS if issubclass(error, Refused) and error is not Refused]
    assert len(codes) == len(set(codes))


def test_model_failure_keeps_the_providers_words_apart_from_the_sentence_for_clients() -> None:
    failed = ModelFailed("rate_limited", "The model is busy.", detail="key sk-secret over quota", retryable=True)
    assert (failed.code, failed.message, failed.retryable) == ("rate_limited", "The model is busy.", True)
    assert "secret" not in str(failed)


class _Inner(msgspec.Struct):
    b: int


class _Outer(msgspec.Struct):
    a: list[_Inner] = []
    o: dict[str, int] = {}


@pytest.mark.parametrize(
    ("body", "text", "path"),
    [
        (b"[]", "Expected `object`, got `array`", ""),
        (b'{"a":1}', "Expected `array`, got `int`", "/a"),
        (b'{"a":[{"b":1},{"b":"x"}]}', "Expected `int`, got `str`", "/a/1/b"),
        (b'{"a":[{}]}', "Object missing required field `b`", "/a/0"),
        (b'{"o":{"x.y":""}}', "Expected `int`, got `str`", "/o"),
    ],
)
def test_place_of_a_wrong_value_becomes_a_json_pointer(body: bytes, text: str, path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.json.decode(body, type=_Outer)
    assert explain(wrong.value) == (text, path)
