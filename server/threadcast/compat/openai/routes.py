"""The endpoints of the door of OpenAI's Chat Completions."""

from threadcast.compat.oneshot import chat_completions

__all__ = ["ROUTES"]

ROUTES = [chat_completions]
