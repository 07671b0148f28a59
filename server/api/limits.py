"""Every number a client can run into, by name and unit: `limits` of `GET /v1/caps` (PROTOCOL §18, SET-3).

Each number stands where it is enforced; this is only their list. The few that a type or another room holds are written
here again, and a test holds them to the place where they count.
"""

from protocol.blobs import BLOB_MAX_BYTES, BLOB_TTL_SECONDS
from protocol.content import (
    BINARY_MAX_BYTES,
    CONTEXT_FILE_NOTES_MAX_BYTES,
    CONTEXT_FILES_MAX_CHARACTERS,
    CONTEXT_FILES_MAX_COUNT,
    LABEL_MAX_CHARACTERS,
    MAX_IMAGES,
    PARTS_MAX_COUNT,
    TEXT_MAX_BYTES,
)
from protocol.ide import CLAIM_MS
from protocol.ids import NAME_MAX_CHARACTERS
from protocol.import_files import IMPORT_MAX_CHATS, IMPORT_MAX_CHILDREN, LINE_MAX_BYTES
from protocol.params import MAX_ROUNDS
from protocol.places import CHATS_MAX
from protocol.processes import PROCESSES_MAX
from protocol.restores import RESTORED_MAX_COUNT
from protocol.state import AGENTS_KEPT, RECENT_ACKS_KEPT
from protocol.subchats import DEPTH_MAX, RUNNING_MAX
from protocol.thread import OBJECT_MAX_BYTES
from server.actor.traces import RECORD_MAX_BYTES
from server.agent.place.profile import DEFAULT_PROFILE
from server.api.commands import PREFER_WAIT_MAX_SECONDS
from server.api.edge import Edge
from server.api.listing import LIST_MAX, LOOKED_AT_MAX, SEARCH_MAX_CHARACTERS
from server.api.transfer import IMPORT_WAIT_SECONDS
from server.relay.feeds import FEED_MAX_CHATS
from server.store.bounds import INBOX_MAX, SEEN_GENERATION, SEEN_TTL_SECONDS, TRACES_MAX_COUNT
from server.tools.base import DEFAULT_TIMEOUT_SECONDS
from server.tools.process_pool import POOL_MAX
from server.tools.runner import RESULT_MAX_BYTES

__all__ = ["limits_of"]

ID_MAX_CHARACTERS = 128
DECISIONS_MAX_COUNT = 100
NOTE_MAX_CHARACTERS = 8_192
WORKER_DEATHS_MAX_COUNT = 3
"""Enforced by the patterns and bounds of `protocol/commands.py`, and by `server/actor/actor.py`."""


def limits_of(edge: Edge) -> dict[str, float]:
    """The limits of this server as it runs."""
    return {
        "body_max_bytes": edge.body_max_bytes,
        "text_max_bytes": TEXT_MAX_BYTES,
        "binary_max_bytes": BINARY_MAX_BYTES,
        "images_max_count": MAX_IMAGES,
        "parts_max_count": PARTS_MAX_COUNT,
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
        "import_messages_max_count": edge.import_messages_max_count,
        "import_children_max_count": IMPORT_MAX_CHILDREN,
        "import_max_bytes": edge.import_max_bytes,
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
        "subscriber_buffer_bytes": edge.buffer_max_bytes,
        "subscriber_stall_seconds": edge.stall_seconds,
        "max_rounds": _default_rounds(edge),
        "tool_timeout_max_seconds": max((t.timeout_seconds for t in edge.tools), default=DEFAULT_TIMEOUT_SECONDS),
        "tool_result_max_bytes": RESULT_MAX_BYTES,
        "worker_deaths_max_count": WORKER_DEATHS_MAX_COUNT,
        "remembered_request_ids_count": SEEN_GENERATION,
        "remembered_request_ids_seconds": SEEN_TTL_SECONDS,
        "recent_acks_count": RECENT_ACKS_KEPT,
        "subchats_running_max_count": RUNNING_MAX,
        "subchats_depth_max_count": DEPTH_MAX,
        "background_agents_count": AGENTS_KEPT,
        "chat_processes_max_count": PROCESSES_MAX,
        "worker_processes_max_count": POOL_MAX,
        "trace_records_max_count": TRACES_MAX_COUNT,
        "trace_record_max_bytes": RECORD_MAX_BYTES,
    }


def _default_rounds(edge: Edge) -> int:
    """Of the profile that a new chat has; a thread may say otherwise."""
    params = next((profile.params for profile in edge.profiles.all if profile.name == DEFAULT_PROFILE), {})
    return int(params.get("max_rounds", MAX_ROUNDS))
