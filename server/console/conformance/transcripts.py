"""Transcripts: what is said to a server and what must come of it, as JSON that any language can read.

One file per behaviour, `tests/conformance/*.json`; a wheel carries them beside this file. `docs/conformance.md` is the
reference of the format. A misspelt key is an error here, since a check that is quietly ignored checks nothing.
"""

from pathlib import Path

import msgspec

from protocol.messages import JsonObject

__all__ = ["Answer", "BadTranscript", "Step", "Transcript", "load", "transcripts_directory"]

VERBS = ("post", "request", "pages", "open", "close", "expect", "frames", "state", "join", "heartbeats")

_IN_WHEEL = Path(__file__).with_name("transcripts")
_IN_CLONE = Path(__file__).resolve().parents[3] / "tests" / "conformance"


class BadTranscript(Exception):
    """A file that is no transcript; the sentence names it."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An HTTP answer: patterns for its status, its body and its headers (names in lower case). The body may be looked
    at as JSON (`body`), as text, as JSON Lines, or as bytes in base64."""

    status: object = 200
    body: object = None
    text: object = None
    lines: object = None
    base64: object = None
    headers: JsonObject = {}


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the verbs in `VERBS`; the other fields belong to it."""

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
    """Of `open`: the stream's name in this transcript."""
    of: str = ""
    """Of `expect`, `frames`: the name of an opened stream; without it, the one on which the chat is watched."""
    items: object = None
    """Of `pages`: the pattern of all items, page by page."""
    eventually: bool = False
    """Of `request`: it is made again until the answer is as it should be."""
    answer: Answer | None = None
    """Of `post`, `request`; without it, of `post` the one that PROTOCOL §3 promises an accepted command."""
    headers: dict[str, str] = {}
    """Of `post`, `request`, `open`, `join`."""
    body: object = None
    """Of `request`, `open`: JSON."""
    text: str | None = None
    """Of `request`: a body that is sent as it is."""
    base64: str | None = None
    """Of `request`: a body of bytes."""

    def verbs(self) -> list[str]:
        return [verb for verb in VERBS if getattr(self, verb) is not None]


class Transcript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    about: str
    steps: list[Step]
    rows: list[str] = []
    requires: list[str] = []
    """`model:demo/echo`, `tool:calculator`, `client_tool:open_file`, `resume`."""
    takes_seconds: float = 0
    """How long it must take, because the protocol has a time in it. The longest ones are begun first."""
    model: str = ""
    """The chat's model, set before the first step. Without it nothing is set up: the chat does not exist yet."""
    params: JsonObject = {}
    """More parameters, set together with the model."""
    chats: list[str] = msgspec.field(default_factory=lambda: ["chat"])
    """Names of the chats; each gets a fresh id and is watched from the beginning. The first one is set up."""
    unwatched: list[str] = []
    """More names with fresh ids, for chats and streams that the kit does not watch and the transcript opens itself."""
    final: dict[str, JsonObject] = {}
    """Maps a chat's name to the pattern of its last snapshot; such a chat is also read and resumed anew."""


def transcripts_directory() -> Path:
    """Where the transcripts of this installation lie: in the wheel, or in the clone."""
    return _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CLONE


def load(directory: Path) -> list[Transcript]:
    """Every transcript of a directory, by name.

    Raises:
        BadTranscript: one of them cannot be read, is called otherwise than its file, or there is none.
    """
    found = [_read(path) for path in sorted(directory.glob("*.json"))]
    if not found:
        raise BadTranscript(f"there is no *.json in {directory}; name the directory with --transcripts")
    return found


def _read(path: Path) -> Transcript:
    try:
        transcript = msgspec.json.decode(path.read_bytes(), type=Transcript)
    except (msgspec.DecodeError, OSError) as wrong:
        raise BadTranscript(f"{path}: {wrong}") from None
    if transcript.name != path.stem:
        raise BadTranscript(f"{path}: its name is {transcript.name!r}; a transcript is called like its file")
    for number, step in enumerate(transcript.steps, 1):
        if len(step.verbs()) != 1:
            raise BadTranscript(f"{path}: step {number} must have one of {', '.join(VERBS)}")
        if step.open is not None and not step.name:
            raise BadTranscript(f"{path}: step {number} opens a stream without a name; give it one with `as`")
        is_about_chat = not (step.request or step.pages or step.open or step.close or step.of)
        if is_about_chat and step.chat not in transcript.chats:
            raise BadTranscript(f"{path}: step {number} is about {step.chat!r}, which is not in chats")
    return transcript
