"""Transcripts: what is said to a server and what must come of it, as JSON that any language can read.

One file per behaviour, `tests/conformance/*.json`; a wheel carries them beside this file. `docs/conformance.md` is the
reference of the format. A misspelt key is an error here, since a check that is quietly ignored checks nothing.
"""

from pathlib import Path

import msgspec

from protocol.messages import JsonObject

__all__ = ["Answer", "BadTranscript", "Step", "Transcript", "load", "transcripts_directory"]

_IN_WHEEL = Path(__file__).with_name("transcripts")
_IN_CLONE = Path(__file__).resolve().parents[3] / "tests" / "conformance"


class BadTranscript(Exception):
    """A file that is no transcript; the sentence names it."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An HTTP answer: patterns for its status, JSON body, plain text and headers (names in lower case)."""

    status: object = 200
    body: object = None
    text: object = None
    headers: JsonObject = {}


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the verbs `post`, `request`, `expect`, `state`, `join`; the other fields belong to it."""

    post: JsonObject | str | None = None
    request: str | None = None
    expect: list[object] | None = None
    state: JsonObject | None = None
    join: JsonObject | None = None
    chat: str = "chat"
    """The name of the chat that the step is about."""
    answer: Answer | None = None
    """Of `post`, `request`; without it, the one that PROTOCOL §3 promises an accepted command."""
    headers: dict[str, str] = {}
    """Of `post`, `request`, `join`."""
    body: object = None
    """Of `request`."""


class Transcript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    about: str
    steps: list[Step]
    rows: list[str] = []
    requires: list[str] = []
    """`model:demo/echo`, `tool:calculator`, `client_tool:open_file`."""
    model: str = ""
    """The chat's model, set before the first step. Without it nothing is set up: the chat does not exist yet."""
    params: JsonObject = {}
    """More parameters, set together with the model."""
    chats: list[str] = msgspec.field(default_factory=lambda: ["chat"])
    """Names of the chats; each gets a fresh id and is watched from the beginning. The first one is set up."""
    final: dict[str, JsonObject] = {}
    """Chat name to what a snapshot of it holds at the end; such a chat is also read and resumed anew."""


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
        verbs = [step.post, step.request, step.expect, step.state, step.join]
        if sum(verb is not None for verb in verbs) != 1:
            raise BadTranscript(f"{path}: step {number} must have one of post, request, expect, state, join")
        if step.chat not in transcript.chats:
            raise BadTranscript(f"{path}: step {number} is about {step.chat!r}, which is not in chats")
    return transcript
