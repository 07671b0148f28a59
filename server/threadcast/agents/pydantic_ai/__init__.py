"""Serves agents of pydantic-ai.

    from pydantic_ai import Agent
    from threadcast.agents.pydantic_ai import serve

    bank = Agent("openai:gpt-5", instructions="You help with accounts.", tools=[charge, balance])
    serve(bank, name="bank", policies={"charge": "ask"})

The framework runs the agent inside a durable function: each response of a model is a message of the chat, and each call
of a tool is a call under the chat's policies. Both are recorded, so that a run continues after a crash or a pause.
"""

try:
    import pydantic_ai as _framework  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "pydantic-ai is not installed: pip install 'threadcast[pydantic-ai]'", name="pydantic_ai"
    ) from missing

from threadcast.agents.pydantic_ai.serving import serve

__all__ = ["serve"]
