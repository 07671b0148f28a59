"""The endpoints of the door of OpenAI's Responses: `/v1/responses` and `/v1/conversations` (PROTOCOL §14)."""

from threadcast.compat.responses.conversations import create_conversation, delete_conversation, read_one_conversation
from threadcast.compat.responses.creating import create_response
from threadcast.compat.responses.reading import cancel_response, delete_response, list_input_items, read_one

__all__ = ["ROUTES"]

ROUTES = [
    create_response,
    read_one,
    cancel_response,
    delete_response,
    list_input_items,
    create_conversation,
    read_one_conversation,
    delete_conversation,
]
