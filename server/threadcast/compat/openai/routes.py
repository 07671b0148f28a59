"""The endpoints of the door of OpenAI's Chat Completions."""

from threadcast.compat.openai.completions import chat_completions
from threadcast.compat.openai.models import list_models, read_model

__all__ = ["ROUTES"]

ROUTES = [chat_completions, list_models, read_model]
