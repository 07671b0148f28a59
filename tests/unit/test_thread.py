"""Tests the parameters of a thread: the table of PROTOCOL §16 row by row, and that no part of a refused patch is
applied."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import (
    OBJECT_MAX_BYTES,
    Thread,
    ThreadChanges,
    ThreadPatch,
    apply_changes,
    read_patch,
)

NAME = "x" * 256
LARGEST_OBJECT = {"a": "x" * (OBJECT_MAX_BYTES - len('{"a":""}'))}

ROWS: dict[str, tuple[list[object], list[object]]] = {
    "title": (["", "x" * 200], ["x" * 201, 7, None]),
    "model": (["", "demo/echo", NAME], [NAME + "x", 7, None]),
    "mode": (["agent", NAME], [NAME + "x", 7, None]),
    "tool_use": (["agent", NAME], [NAME + "x", False, None]),
    "custom_instructions": (["x" * 32_768, None], ["x" * 32_769, 7]),
    "temperature": ([0, 0.7, 2, None], [-0.01, 2.01, "1", True]),
    "top_p": ([0, 1, 0.5, None], [-0.01, 1.01, "1"]),
    "frequency_penalty": ([-2, 2, None], [-2.01, 2.01, "0"]),
    "presence_penalty": ([-2, 2, None], [-2.01, 2.01, "0"]),
    "max_tokens": ([1, 1_000_000, None], [0, 1_000_001, 1.5, "1", True]),
    "top_k": ([0, 100_000, None], [-1, 100_001, 1.5, "1", True]),
    "min_p": ([0, 1, 0.05, None], [-0.01, 1.01, "1"]),
    "repetition_penalty": ([0.1, 2, None], [0, -1, 2.01, "1"]),
    "seed": ([0, 2_147_483_647, None], [-1, 2_147_483_648, 1.5, "1"]),
    "stop": ([[], ["x" * 256] * 4, None], [["a"] * 5, "a", [""], ["x" * 257], [1]]),
    "context_tokens_cap": ([1_000, 10**9, None], [999, -1, "1000"]),
    "max_history_tokens": ([1_000, 10**9, None], [999, "1000"]),
    "thinking_budget": ([0, 1_000_000, None], [-1, 1_000_001, "0"]),
    "reasoning_effort": (["none", "minimal", "low", "medium", "high", "xhigh", "max", None], ["most", 1, "LOW"]),
    "boost_reasoning": ([True, False, None], [0, "true"]),
    "parallel_tool_calls": ([True, False, None], [1, "true"]),
    "include_project_info": ([True, False], [1, "true", None]),
    "checkpoints_enabled": ([True, False], [1, None]),
    "is_title_generated": ([True, False], [1, None]),
    "auto_approve_editing_tools": ([True, False], [1, "yes", None]),
    "auto_approve_dangerous_commands": ([True, False], [1, "yes", None]),
    "autonomous_no_confirm": ([True, False], [1, "yes", None]),
    "merge_queued": ([True, False, None], [1]),
    "max_rounds": ([1, 100, None], [0, 101, 1.5, "5"]),
    "on_limit": (["stop", "summarize", "ask", None], ["go", 1]),
    "on_abort": (["keep", "discard", None], ["drop"]),
    "on_client_timeout": (["continue", "stop", None], ["wait"]),
    "temporary": ([True, False, None], [1, "true"]),
    "on_deny": (["continue", "stop", None], ["ask"]),
    "on_owner_loss": (["auto", "continue", "restart", "stop", None], ["retry"]),
    "reasoning": (["stream", "log", "off", None], ["on", True]),
    "history_tools": (["full", "none", None], ["some"]),
    "max_history_messages": ([0, 10_000, None], [-1, 10_001]),
    "scope": ([[], ["a", "b", "c"], [NAME], None], [["a", "b", "c", "d"], "a", [1], [NAME + "x"]]),
    "tools_disabled": ([[], ["a"] * 1_000, None], [["a"] * 1_001, "a", [1], [NAME + "x"], {}]),
    "mcp_servers": ([[], ["a"] * 1_000, None], [["a"] * 1_001, "a", [None], [NAME + "x"]]),
    "context": ([{}, LARGEST_OBJECT, None], [LARGEST_OBJECT | {"b": 1}, [], "x", 7]),
    "metadata": ([{}, LARGEST_OBJECT, None], [LARGEST_OBJECT | {"b": 1}, [], "x", 7]),
    "parent_id": (["c-1", "x" * 128, None], ["../c", "x" * 129, "c\n", 7]),
    "link_type": (["branch", None], ["a b", 7]),
    "root_chat_id": (["c-1", None], ["a/b", "x" * 129]),
}


def test_table_has_a_row_for_every_parameter() -> None:
    assert set(ROWS) == set(ThreadPatch.__struct_fields__)


@pytest.mark.parametrize("key", ROWS)
def test_value_within_its_bounds_is_taken_as_it_is(key: str) -> None:
    for value in ROWS[key][0]:
        assert read_patch({key: value}) == {key: value}


@pytest.mark.row("SET-2")
@pytest.mark.parametrize("key", ROWS)
def test_value_out_of_bounds_is_refused_by_name_and_nothing_of_its_patch_applies(key: str) -> None:
    other = "title" if key != "title" else "model"
    for value in ROWS[key][1]:
        for patch in ({other: "fine", key: value}, {key: value, other: "fine"}):
            with pytest.raises(BadRequest) as refused:
                read_patch(patch)
            assert (refused.value.path or "").startswith(f"/patch/{key}")
            assert refused.value.message.startswith(key)


@pytest.mark.parametrize("key", ROWS)
def test_empty_text_clears_an_optional_key(key: str) -> None:
    is_optional = None in ROWS[key][0]
    if is_optional:
        assert read_patch({key: ""}) == {key: None}
    elif isinstance(ROWS[key][0][0], bool):
        with pytest.raises(BadRequest):
            read_patch({key: ""})


@pytest.mark.parametrize("patch", [None, [], "title", 7, True])
def test_patch_that_is_no_object_is_refused(patch: object) -> None:
    with pytest.raises(BadRequest) as refused:
        read_patch(patch)
    assert refused.value.path == "/patch"


@pytest.mark.parametrize(
    "foreign", ["auto_compression_cap", "worktree_id", "task_meta", "buddy_meta", "auto_enrichment_enabled", "reason"]
)
def test_foreign_keys_are_left_out(foreign: str) -> None:
    assert read_patch({foreign: object(), "title": "T"}) == {"title": "T"}


@pytest.mark.parametrize("key", ["id", "owner", "usage", "created_at", "last_active", "leaf_id", "forked_from"])
def test_what_only_the_server_writes_cannot_be_patched(key: str) -> None:
    assert read_patch({key: "x"}) == {}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_values = _json | st.sampled_from([value for good, bad in ROWS.values() for value in good + bad])


@given(st.dictionaries(st.sampled_from(list(ROWS)) | st.text(max_size=8), _values, max_size=4) | _json)
def test_any_json_is_taken_or_refused_and_what_is_taken_applies_and_is_echoed(patch: object) -> None:
    try:
        changes = read_patch(patch)
    except BadRequest as refused:
        assert (refused.path or "").startswith("/patch")
        return
    assert isinstance(patch, dict)
    assert set(changes) == set(patch) & set(ROWS)
    event = ThreadUpdated(**changes)
    said: JsonObject = msgspec.json.decode(encode(event))
    assert said == {"type": "thread_updated", **changes}
    assert msgspec.json.decode(encode(event), type=ThreadUpdated) == event
    thread = apply_changes(Thread(id="c1"), event)
    assert {key: getattr(thread, key) for key in changes} == changes


# --- the thread itself


def test_new_thread_shows_its_defaults_and_nothing_that_is_not_set() -> None:
    assert msgspec.to_builtins(Thread(id="c1")) == {
        "id": "c1",
        "title": "New Chat",
        "model": "",
        "mode": "agent",
        "tool_use": "agent",
        "context_tokens_cap": None,
        "include_project_info": True,
        "checkpoints_enabled": True,
        "is_title_generated": False,
        "auto_approve_editing_tools": False,
        "auto_approve_dangerous_commands": False,
        "autonomous_no_confirm": False,
    }


def test_changes_touch_only_what_they_name_and_leave_the_old_thread_alone() -> None:
    before = Thread(id="c1", temperature=0.5, top_p=0.9)
    after = apply_changes(before, ThreadChanges(temperature=None, title="T"))
    assert after == Thread(id="c1", top_p=0.9, title="T")
    assert before == Thread(id="c1", temperature=0.5, top_p=0.9)


def test_thread_changes_and_patch_agree_on_their_keys() -> None:
    assert set(ThreadPatch.__struct_fields__) < set(ThreadChanges.__struct_fields__)
    assert {"id", *ThreadChanges.__struct_fields__} == set(Thread.__struct_fields__)
