"""The translation of the AI SDK's UI messages, without a server: a page that joins at any moment ends with the same
messages as a page that loads afterwards."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.compat.ai_sdk.chunks import UIStream
from threadcast.compat.ai_sdk.parts import ui_messages
from threadcast.compat.base import OutFrame
from threadcast_protocol.wire.commands import ToolDecision
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, SetToolCalls

TOOLS = {"clock": FakeTool(name="clock", retry="safe"), "mail": FakeTool(name="mail", policy="ask")}
WORDS = st.text(min_size=1, max_size=6)


@st.composite
def turns(draw: st.DrawFn) -> PureChat:
    """Return a chat with one message of the user, and up to 15 steps of its answer."""
    chat = PureChat(table(TOOLS), say("a"))
    for number in range(draw(st.integers(1, 15))):
        if isinstance(chat.step, CallModel):
            match draw(st.sampled_from(["text", "reasoning", "calls", "end", "crash", "break"])):
                case "text":
                    chat.stream(AppendContent(draw(WORDS)))
                case "reasoning":
                    chat.stream(AppendReasoning(draw(WORDS)))
                case "calls":
                    names = draw(st.lists(st.sampled_from([*TOOLS, "unknown"]), min_size=1, max_size=3))
                    calls = [call(f"call{number}{at}", name, '{"a": 1}') for at, name in enumerate(names)]
                    chat.stream(SetToolCalls(calls))
                    chat.finish()
                case "end":
                    chat.finish()
                case "crash" if _is_continued(chat):
                    chat.crash(can_continue=True)
                case "break":
                    chat.break_off()
                case _:
                    pass
        elif isinstance(chat.step, RunTool):
            chat.tool_answers(draw(WORDS), failed=draw(st.booleans()))
        elif draw(st.booleans()) and chat.state.runtime.pause_reasons:
            asked = chat.state.runtime.pause_reasons[0].tool_call_id
            accepted = draw(st.booleans())
            chat.command(ToolDecision(client_request_id=f"d{number}", tool_call_id=asked, accepted=accepted))
    return chat


def _is_continued(chat: PureChat) -> bool:
    """Return whether the next worker continues the answer; a worker that starts the answer again leaves text that pages
    keep."""
    draft = chat.state.draft
    return draft is not None and bool(str(draft.content)) and not draft.message.tool_calls


def assembled(frames: list[OutFrame]) -> list[Any]:
    """Return the parts that the chunks make, as `processUIMessageStream` of npm `ai` does."""
    parts: list[Any] = []
    open_parts: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    for frame in frames:
        if frame.data == "[DONE]":
            break
        chunk = json.loads(frame.data)
        match chunk["type"]:
            case "start-step":
                parts.append({"type": "step-start"})
            case "text-start" | "reasoning-start" as kind:
                assert chunk["id"] not in open_parts
                open_parts[chunk["id"]] = {"type": kind.removesuffix("-start"), "text": ""}
                parts.append(open_parts[chunk["id"]])
            case "text-delta" | "reasoning-delta":
                open_parts[chunk["id"]]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                del open_parts[chunk["id"]]
            case "tool-input-start":
                began = {"type": f"tool-{chunk['toolName']}", "state": "input-streaming", "text": ""}
                tools[chunk["toolCallId"]] = began
                parts.append(tools[chunk["toolCallId"]])
            case "tool-input-delta":
                tools[chunk["toolCallId"]]["text"] += chunk["inputTextDelta"]
            case "tool-input-available":
                part = tools[chunk["toolCallId"]]
                part |= {"state": "input-available", "input": chunk["input"]}
                assert json.loads(part["text"]) == part["input"]
            case "tool-approval-request":
                tools[chunk["toolCallId"]] |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
            case "tool-output-available":
                tools[chunk["toolCallId"]] |= {"state": "output-available", "output": chunk["output"]}
            case "tool-output-error":
                tools[chunk["toolCallId"]] |= {"state": "output-error", "errorText": chunk["errorText"]}
            case "tool-output-denied":
                tools[chunk["toolCallId"]] |= {"state": "output-denied"}
            case "finish-step":
                assert not open_parts, "a step is finished when its texts are"
            case _:
                pass
    return parts


def shown(parts: list[Any]) -> list[Any]:
    """Return the steps: the text and the reasoning of each, and its calls with their states and outputs. Reasoning
    between texts may be a separate part, and an answer that failed before its first word leaves an empty step."""
    steps: list[Any] = []
    for part in parts:
        if part.get("state") == "input-streaming" and "text" in part:
            part["input"] = json.loads(part["text"])
        if part["type"] == "step-start":
            steps.append({"text": "", "reasoning": "", "calls": []})
        elif part["type"] in ("text", "reasoning"):
            steps[-1][part["type"]] += part["text"]
        else:
            kept = {key: part[key] for key in ("type", "state", "input", "output", "errorText") if key in part}
            steps[-1]["calls"].append(kept)
    return [step for step in steps if any(step.values())]


@settings(max_examples=500, deadline=None)
@given(turns(), st.data())
def test_a_page_that_joins_at_any_moment_has_what_a_page_that_loads_at_the_end_has(
    chat: PureChat, data: st.DataObject
) -> None:
    begun = [at for at, state in enumerate(chat.states) if state.path]
    joined = chat.states[data.draw(st.sampled_from(begun))]
    stream = UIStream("c1")
    frames = stream.join(joined)
    ended_at = joined.position
    for event in chat.events[joined.position :]:
        if stream.is_done:
            break
        frames += stream.feed(event)
        ended_at += 1
    end = next(state for state in chat.states if state.position >= ended_at)
    messages = ui_messages(end)
    answer = messages[-1]["parts"] if messages[-1]["role"] == "assistant" else []
    assert shown(assembled(frames)) == shown(answer)
