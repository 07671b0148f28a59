"""Guardrails whose results are recorded, so that a replay does not run the guardrails again. Many guardrails call a
model themselves."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from agents import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail
from agents.exceptions import (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)

from threadcast.agents.openai_agents.models import is_nested
from threadcast.custom_agents.seam import Seam
from threadcast_protocol.wire.mending import mend

__all__ = ["INFO_MAX_CHARACTERS", "TRIPPED", "recorded_input_guardrail", "recorded_output_guardrail", "trip_text"]

INFO_MAX_CHARACTERS = 500
"""The maximum length of a guardrail's information in the run's error."""

TRIPPED = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)


def recorded_input_guardrail(guardrail: InputGuardrail[Any], key: str, seam: Seam) -> InputGuardrail[Any]:
    """Return a guardrail for a run's input that runs only once."""
    function = _once(guardrail.guardrail_function, f"input-{key}", seam)
    return dataclasses.replace(guardrail, guardrail_function=function, name=guardrail.get_name())


def recorded_output_guardrail(guardrail: OutputGuardrail[Any], key: str, seam: Seam) -> OutputGuardrail[Any]:
    """Return a guardrail for a run's output that runs only once."""
    function = _once(guardrail.guardrail_function, f"output-{key}", seam)
    return dataclasses.replace(guardrail, guardrail_function=function, name=guardrail.get_name())


def _once(function: Callable[..., Any], key: str, seam: Seam) -> Callable[..., Any]:
    key = f"guardrail-{key}"[:200]

    async def run(*args: Any) -> GuardrailFunctionOutput:
        found = await seam.get(key)
        if found is None:
            token = is_nested.set(True)
            try:
                output = function(*args)
                output = await output if inspect.isawaitable(output) else output
            finally:
                is_nested.reset(token)
            found = {"tripped": bool(output.tripwire_triggered), "info": mend(str(output.output_info))}
            await seam.put(key, found)
        return GuardrailFunctionOutput(output_info=found["info"], tripwire_triggered=found["tripped"])

    return run


def trip_text(tripped: Exception) -> str:
    """Return the sentence for the run's error: the kind and the name of the guardrail, and its text."""
    match tripped:
        case InputGuardrailTripwireTriggered(guardrail_result=result):
            kind, name, info = "input guardrail", result.guardrail.get_name(), result.output.output_info
        case OutputGuardrailTripwireTriggered(guardrail_result=result):
            kind, name, info = "output guardrail", result.guardrail.get_name(), result.output.output_info
        case ToolInputGuardrailTripwireTriggered(guardrail=guardrail, output=output):
            kind, name, info = "guardrail of a tool's input", guardrail.get_name(), output.output_info
        case ToolOutputGuardrailTripwireTriggered(guardrail=guardrail, output=output):
            kind, name, info = "guardrail of a tool's output", guardrail.get_name(), output.output_info
        case _:
            raise tripped
    text = "" if info in (None, "", "None") else str(info)[:INFO_MAX_CHARACTERS]
    return f"The {kind} {name!r} stopped the run{f': {text}' if text else '.'}"
