"""Serves agents of the OpenAI Agents SDK.

    from agents import Agent
    from threadcast.agents.openai_agents import serve

    bank = Agent(name="bank", instructions="You help with accounts.", tools=[charge, balance])
    serve(bank, policies={"charge": "ask"})

The SDK runs the agent inside a durable function: each response of a model is a message of the chat, and each function
tool is a call under the chat's policies. Both are recorded, so that a run continues after a crash or a pause.
"""

try:
    import agents as _sdk  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "the OpenAI Agents SDK is not installed: pip install 'threadcast[openai-agents]'", name="agents"
    ) from missing

from threadcast.agents.openai_agents.serving import serve

__all__ = ["serve"]
