"""The settings of doors, through which clients of other servers' formats use this server: `[doors]`."""

from typing import Literal, TypeAlias, get_args

import msgspec

from threadcast.settings.values import Section

__all__ = ["DOORS", "AgUiDoor", "AiSdkDoor", "Door", "DoorName", "Doors", "OpenAIDoor", "ResponsesDoor"]

DoorName: TypeAlias = Literal["openai", "responses", "ai_sdk", "ag_ui", "mcp"]

DOORS: tuple[DoorName, ...] = get_args(DoorName)

Leaving: TypeAlias = Literal["continue", "abort"]


class Door(Section, frozen=True):
    on_disconnect: Leaving = "continue"
    """What happens to a run when the client that began it disconnects. continue: the run goes on, and can be joined
    again. abort: the run is stopped. Choose abort for clients that have no other way to stop a run."""


class OpenAIDoor(Door, frozen=True):
    on_disconnect: Leaving = "abort"
    """What happens to a run when the client that began it disconnects. abort: the run is stopped, as clients of
    OpenAI's API expect, since they stop by closing the request. continue: the run goes on."""

    chat_id_header: str = ""
    """The name of a request header that chooses the chat, such as X-OpenWebUI-Chat-Id. The chat may be new. Set it only
    if all requests come from a front end that you trust and that sets the header itself. Empty: no header."""

    match_history: bool = False
    """Whether a request without a chat's id continues the chat whose messages equal those of the request. Set it for
    front ends that send the whole conversation each time and no id; otherwise each request begins a chat."""

    user_header: str = ""
    """The name of a request header in which a front end names its user, such as X-OpenWebUI-User-Id. Only chats of the
    same user are continued by their history. The key `user` of the body names the user as well. Empty: no header."""


class ResponsesDoor(Door, frozen=True):
    pass


class AiSdkDoor(Door, frozen=True):
    pass


class AgUiDoor(Door, frozen=True):
    pass


class Doors(Section, frozen=True):
    open: list[DoorName] = msgspec.field(default_factory=lambda: list(DOORS))
    """The doors that are open: openai (Chat Completions), responses (OpenAI's Responses), ai_sdk (the AI SDK's UI
    messages), ag_ui and mcp. A door that is not in the list costs nothing. Leave out doors that are not used."""

    openai: OpenAIDoor = OpenAIDoor()
    responses: ResponsesDoor = ResponsesDoor()
    ai_sdk: AiSdkDoor = AiSdkDoor()
    ag_ui: AgUiDoor = AgUiDoor()

    def __post_init__(self) -> None:
        if len(set(self.open)) != len(self.open):
            raise ValueError("open: a door is listed twice")
        headers = {"chat_id_header": self.openai.chat_id_header, "user_header": self.openai.user_header}
        for key, name in headers.items():
            if name and not (name.isascii() and name.replace("-", "").isalnum()):
                raise ValueError(f"openai.{key}: write the name of a header, such as X-OpenWebUI-Chat-Id")
