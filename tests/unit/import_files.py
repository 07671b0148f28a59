"""Exports as a server reads them: from a file, in parts."""

import tempfile

from msgspec.structs import replace

from tests.unit.pure_chat import PureChat
from threadcast.api.spool import Spool
from threadcast.chat.import_files import check_exports, read_blobs, read_parts
from threadcast.chat.internal_commands import ImportChat
from threadcast.settings.limits import Limits
from threadcast_protocol.wire.events import PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import SYSTEM

__all__ = ["InFile", "read_exports"]


class InFile:
    """A chat in the body of an import, and the commands that create the chat."""

    def __init__(self, chat_id: str, parts: list[ImportChat], blob_hashes: list[str]) -> None:
        self.chat_id = chat_id
        self.parts = parts
        self.blob_hashes = blob_hashes

    @property
    def messages(self) -> list[Message]:
        return [message for part in self.parts for message in part.messages]

    @property
    def payloads(self) -> list[PayloadAdded]:
        return [payload for part in self.parts for payload in part.payloads]

    @property
    def agents(self) -> list[JsonObject]:
        return [agent for part in self.parts for agent in part.agents]

    def imported_into(self, chat: PureChat) -> None:
        for part in self.parts:
            chat.command(replace(part, client_request_id=f"import-{part.part}"), by=SYSTEM)


def read_exports(body: bytes) -> list[InFile]:
    """Raises the errors of `check_exports`."""
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.flush()
        spool = Spool(file)
        return [
            InFile(chat.header.chat_id, list(read_parts(spool, chat)), [blob.hash for blob in read_blobs(spool, chat)])
            for chat in check_exports(spool, Limits().import_max_messages)
        ]
