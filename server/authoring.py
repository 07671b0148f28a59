"""What an operator's own file needs (`serve --app my_tools.py`), in one place.

    from server.authoring import ToolContext, tool

Tools, their arguments and results; types of payloads; sections of prompts; greetings and starters, which are shown
before the first message; functions that run beside the server. Ready-made tools lie beside
it: `server.tools.agents`, `server.tools.process_tools`, `server.tools.workflow`. These names stay; where they are
defined is our business.
"""

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from server.agent.place.payload_types import PayloadType, payload_type
from server.agent.place.prompt import PromptContext, section
from server.agent.place.welcome import Starter, Welcome
from server.companions import companion
from server.tools.base import ClientEvent, Payload, Progress, ToolContext, ToolResult
from server.tools.preview import Preview
from server.tools.python import tool
from server.tools.resolvers import resolver
from server.tools.traits import Binding, Traits, schema_of

__all__ = [
    "Binding",
    "ClientEvent",
    "JsonObject",
    "Payload",
    "PayloadType",
    "Preview",
    "Progress",
    "PromptContext",
    "Starter",
    "ToolContext",
    "ToolFailed",
    "ToolResult",
    "Traits",
    "Welcome",
    "companion",
    "payload_type",
    "resolver",
    "schema_of",
    "section",
    "tool",
]
