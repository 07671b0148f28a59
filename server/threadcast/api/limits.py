"""Lists all limits that a client can reach, by name and unit, for `limits` of `GET /v1/caps` (PROTOCOL §18, SET-3).

Most numbers are imported from the module that enforces them. A few numbers are part of a type, or of a module that the
web half may not import. They are repeated below, and a test compares them with the originals.
"""

from threadcast.api.commands import PREFER_WAIT_MAX_SECONDS
from threadcast.api.declared_tools import DECLARED_TOOLS_MAX_BYTES
from threadcast.api.edge import Edge
from threadcast.api.listing import LIST_MAX, LOOKED_AT_MAX, SEARCH_MAX_CHARACTERS
from threadcast.api.transfer import IMPORT_WAIT_SECONDS
from threadcast.chat.ide import CLAIM_MS
from threadcast.chat.import_files import IMPORT_MAX_CHATS, IMPORT_MAX_CHILDREN, LINE_MAX_BYTES
from threadcast.chat.params import MAX_ROUNDS
from threadcast.chat.processes import CHAT_PROCESSES_MAX
from threadcast.chat.restores import RESTORED_MAX_COUNT
from threadcast.chat.subchats import DEPTH_MAX, RUNNING_MAX
from threadcast.fanout.feeds import FEED_MAX_CHATS
from threadcast.profiles.profile import DEFAULT_PROFILE
from threadcast.store.bounds import INBOX_MAX, SEEN_GENERATION, SEEN_TTL_SECONDS, TRACES_MAX_COUNT
from threadcast.store.trace_records import RECORD_MAX_BYTES
from threadcast_protocol.fold.state import AGENTS_KEPT, RECENT_ACKS_KEPT
from threadcast_protocol.framing.stream_ids import CHATS_MAX
from threadcast_protocol.wire.blobs import BLOB_MAX_BYTES, BLOB_TTL_SECONDS
from threadcast_protocol.wire.commands import DECLARED_TOOLS_MAX
from threadcast_protocol.wire.content import (
    BINARY_MAX_BYTES,
    CONTEXT_FILE_NOTES_MAX_BYTES,
    CONTEXT_FILES_MAX_CHARACTERS,
    CONTEXT_FILES_MAX_COUNT,
    LABEL_MAX_CHARACTERS,
    MAX_IMAGES,
    MESSAGE_TEXT_MAX_BYTES,
    PARTS_MAX_COUNT,
)
from threadcast_protocol.wire.ids import NAME_MAX_CHARACTERS
from threadcast_protocol.wire.thread import OBJECT_MAX_BYTES

__all__ = ["limits_of"]

ID_MAX_CHARACTERS = 128
DECISIONS_MAX_COUNT = 100
NOTE_MAX_CHARACTERS = 8_192
WORKER_DEATHS_MAX_COUNT = 3
"""The types in `wire/commands.py`, and `actor/actor.py`, enforce these four limits."""


def limits_of(edge: Edge) -> dict[str, float]:
    """Return the limits of this server with its present settings."""
    return {
        "body_max_bytes": edge.limits.body_max_bytes,
        "storage_max_bytes": edge.limits.storage_per_principal_bytes,
        "chats_max_count": edge.limits.chats_per_principal,
        "bodies_at_once_max_bytes": edge.limits.bodies_per_principal_bytes,
        "text_max_bytes": MESSAGE_TEXT_MAX_BYTES,
        "binary_max_bytes": BINARY_MAX_BYTES,
        "images_max_count": MAX_IMAGES,
        "parts_max_count": PARTS_MAX_COUNT,
        "declared_tools_max_count": DECLARED_TOOLS_MAX if edge.limits.client_tools else 0,
        "declared_tools_max_bytes": DECLARED_TOOLS_MAX_BYTES,
        "context_files_max_count": CONTEXT_FILES_MAX_COUNT,
        "context_files_max_characters": CONTEXT_FILES_MAX_CHARACTERS,
        "context_file_notes_max_bytes": CONTEXT_FILE_NOTES_MAX_BYTES,
        "label_max_characters": LABEL_MAX_CHARACTERS,
        "id_max_characters": ID_MAX_CHARACTERS,
        "name_max_characters": NAME_MAX_CHARACTERS,
        "decisions_max_count": DECISIONS_MAX_COUNT,
        "note_max_characters": NOTE_MAX_CHARACTERS,
        "context_max_bytes": OBJECT_MAX_BYTES,
        "list_max_count": LIST_MAX,
        "list_looked_at_max_count": LOOKED_AT_MAX,
        "search_max_characters": SEARCH_MAX_CHARACTERS,
        "feed_max_count": FEED_MAX_CHATS,
        "import_max_count": IMPORT_MAX_CHATS,
        "import_messages_max_count": edge.limits.import_max_messages,
        "import_children_max_count": IMPORT_MAX_CHILDREN,
        "import_max_bytes": edge.limits.import_max_bytes,
        "import_line_max_bytes": LINE_MAX_BYTES,
        "import_wait_seconds": IMPORT_WAIT_SECONDS,
        "waiting_commands_max_count": INBOX_MAX["normal"],
        "waiting_exempt_max_count": INBOX_MAX["exempt"],
        "prefer_wait_max_seconds": PREFER_WAIT_MAX_SECONDS,
        "stream_chats_max_count": CHATS_MAX,
        "blob_max_bytes": BLOB_MAX_BYTES,
        "blob_unused_seconds": BLOB_TTL_SECONDS,
        "client_tool_claim_seconds": CLAIM_MS / 1_000,
        "restored_messages_max_count": RESTORED_MAX_COUNT,
        "subscriber_buffer_bytes": edge.limits.subscriber_buffer_bytes,
        "subscriber_stall_seconds": edge.limits.subscriber_stall_seconds,
        "max_rounds": _default_rounds(edge),
        "tool_timeout_max_seconds": edge.worker_limits.tool_timeout_max_seconds,
        "tool_result_max_bytes": edge.worker_limits.tool_result_max_bytes,
        "worker_deaths_max_count": WORKER_DEATHS_MAX_COUNT,
        "remembered_request_ids_count": SEEN_GENERATION,
        "remembered_request_ids_seconds": SEEN_TTL_SECONDS,
        "recent_acks_count": RECENT_ACKS_KEPT,
        "subchats_running_max_count": RUNNING_MAX,
        "subchats_depth_max_count": DEPTH_MAX,
        "background_agents_count": AGENTS_KEPT,
        "chat_processes_max_count": CHAT_PROCESSES_MAX,
        "worker_processes_max_count": edge.worker_limits.worker_processes_max_count,
        "trace_records_max_count": TRACES_MAX_COUNT,
        "trace_record_max_bytes": RECORD_MAX_BYTES,
    }


def _default_rounds(edge: Edge) -> int:
    """Return the limit of rounds in the profile of a new chat. A thread may set a different limit."""
    params = next((profile.params for profile in edge.profiles.all if profile.name == DEFAULT_PROFILE), {})
    return int(params.get("max_rounds", MAX_ROUNDS))
