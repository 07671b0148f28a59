"""Reads transcripts: JSON files with requests to a server and the answers that the server must give.

There is one file for each behaviour, in `transcripts/`. `docs/conformance.md` is the reference of the format. A
misspelt key is an error, because otherwise the check with this key would be skipped without notice.
"""

from pathlib import Path

import msgspec

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Answer", "BadTranscript", "Step", "Transcript", "load", "transcripts_directory"]

VERBS = ("post", "request", "pages", "open", "close", "expect", "frames", "state", "join", "heartbeats")

_DIRECTORY = Path(__file__).with_name("transcripts")


class BadTranscript(Exception):
    """A file is not a transcript. The message names the file."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Patterns for the status, the body and the headers of an HTTP answer. Names of headers are in lower case.

    `body` matches the body as JSON, `text` as text, `lines` as JSON Lines, and `base64` as bytes in base64.
    """

    status: object = 200
    body: object = None
    text: object = None
    lines: object = None
    base64: object = None
    headers: JsonObject = {}


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step has exactly one of the verbs in `VERBS`; the other fields are the arguments of this verb."""

    post: JsonObject | str | None = None
    request: str | None = None
    pages: str | None = None
    open: str | None = None
    close: str | None = None
    expect: list[object] | None = None
    frames: list[object] | None = None
    state: JsonObject | None = None
    join: JsonObject | None = None
    heartbeats: int | None = None
    chat: str = "chat"
    """The name of the chat that the step is about."""
    name: str = msgspec.field(name="as", default="")
    """For `open`: the stream's name in this transcript."""
    of: str = ""
    """For `expect` and `frames`: the name of an opened stream. Without a name, the step uses the stream that watches
    the chat."""
    items: object = None
    """For `pages`: the pattern of all items of all pages."""
    eventually: bool = False
    """For `request`: whether the request is repeated until the answer matches."""
    answer: Answer | None = None
    """For `post` and `request`: the expected answer. By default, `post` expects the answer to an accepted command
    (PROTOCOL §3), and `request` expects status 200."""
    headers: dict[str, str] = {}
    """For `post`, `request`, `open` and `join`: the headers of the request."""
    body: object = None
    """For `request` and `open`: the body of the request, sent as JSON."""
    text: str | None = None
    """For `request`: the body of the request as text, sent unchanged."""
    base64: str | None = None
    """For `request`: the body of the request as bytes in base64."""

    def verbs(self) -> list[str]:
        return [verb for verb in VERBS if getattr(self, verb) is not None]


class Transcript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    about: str
    steps: list[Step]
    rows: list[str] = []
    requires: list[str] = []
    """Abilities that the server must have, such as `model:demo/echo`, `tool:calculator`, `client_tool:open_file` or
    `resume`."""
    takes_seconds: float = 0
    """Minimum duration of the transcript, if it waits for a time that the protocol defines. The longest transcripts are
    started first."""
    model: str = ""
    """The first chat's model, set before the first step. Without a model the chat does not exist at the first step."""
    params: JsonObject = {}
    """Further parameters of the first chat, which are set together with its model."""
    chats: list[str] = msgspec.field(default_factory=lambda: ["chat"])
    """Names of the chats. Each chat gets a new id and is watched from the beginning."""
    unwatched: list[str] = []
    """Further names that get new ids, for chats and streams that the transcript opens itself."""
    final: dict[str, JsonObject] = {}
    """Maps a chat's name to the pattern of its last snapshot. Such a chat is also read and resumed at the end."""


def transcripts_directory() -> Path:
    """Return the directory of the installed transcripts."""
    return _DIRECTORY


def load(directory: Path) -> list[Transcript]:
    """Read every transcript of a directory. Returns them ordered by name.

    Raises:
        BadTranscript: a file cannot be read, the names of a file and of its transcript differ, or the directory has no
            files.
    """
    found = [_read(path) for path in sorted(directory.glob("*.json"))]
    if not found:
        raise BadTranscript(f"{directory} has no *.json; name a directory of transcripts with --transcripts")
    return found


def _read(path: Path) -> Transcript:
    try:
        transcript = msgspec.json.decode(path.read_bytes(), type=Transcript)
    except (msgspec.DecodeError, OSError) as wrong:
        raise BadTranscript(f"{path}: {wrong}") from None
    if transcript.name != path.stem:
        raise BadTranscript(f"{path}: the transcript's name is {transcript.name!r}; it must be called like its file")
    for number, step in enumerate(transcript.steps, 1):
        if len(step.verbs()) != 1:
            raise BadTranscript(f"{path}: step {number} must have one of {', '.join(VERBS)}, and only one")
        if step.open is not None and not step.name:
            raise BadTranscript(f"{path}: step {number} opens a stream without a name; give it one with `as`")
        is_about_chat = not (step.request or step.pages or step.open or step.close or step.of)
        if is_about_chat and step.chat not in transcript.chats:
            raise BadTranscript(f"{path}: step {number} is about {step.chat!r}, which is not in chats; add it there")
    return transcript
