"""Server-Sent Events in both directions: any bytes, cut anywhere, and any text that is to be sent as one event.

We have two readers: `framing/sse.py` serves Threadcast's clients, and `providers/sse_split.py` reads the streams of
models. The two parsers were written independently, so each checks the other.
"""

import re
from random import Random

from tests.fuzz import corpus
from tests.fuzz.mutator import pieces
from tests.fuzz.target import Target, held
from tests.fuzz.targets.wires import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES
from threadcast.providers.sse_split import EventTooLarge, SseSplitter
from threadcast_protocol.framing.sse import (
    EventFrame,
    Frame,
    FrameParser,
    ParsedFrame,
    encode_event,
    snapshot_frame,
    transient_frame,
)
from threadcast_protocol.wire.errors import Internal, TooLarge

__all__ = ["stream_targets"]

_BOUND = 4_096
"""Maximum bytes of one unfinished event: small, so that inputs reach it."""


def _parsed(chunks: list[bytes], max_bytes: int) -> list[ParsedFrame] | None:
    parser = FrameParser(max_bytes)
    frames: list[ParsedFrame] = []
    try:
        for chunk in chunks:
            frames += parser.feed(chunk)
    except TooLarge:
        return None
    return frames


def _split(chunks: list[bytes], max_bytes: int) -> list[bytes] | None:
    splitter = SseSplitter(max_bytes)
    events: list[bytes] = []
    try:
        for chunk in chunks:
            events += splitter.feed(chunk)
    except EventTooLarge:
        return None
    return events


def _frames(data: bytes, random: Random) -> bool:
    whole = _parsed([data], 10_000_000)
    held(whole is not None, "a small stream is too large")
    held(whole == _parsed(pieces(random, data), 10_000_000), "how the bytes are cut changes the frames", data)
    _parsed(pieces(random, data), _BOUND)
    return bool(whole)


def _splitter(data: bytes, random: Random) -> bool:
    whole = _split([data], 10_000_000)
    held(whole is not None, "a small stream is too large")
    held(whole == _split(pieces(random, data), 10_000_000), "how the bytes are cut changes the events", data)
    _split(pieces(random, data), _BOUND)
    ours = _parsed([data], 10_000_000) or []
    texts = [frame.data for frame in ours if isinstance(frame, EventFrame)]
    held(texts == [event.decode("utf-8", "replace") for event in whole or ()], "the two readers differ", data)
    return bool(whole)


_LINE_ENDS = re.compile("\r\n|\r|\n")


def _written(data: bytes, random: Random) -> bool:
    """Send any text as one event: the reader must receive this text and nothing else."""
    text = data.decode("utf-8", random.choice(("replace", "surrogateescape")))
    cut = random.randrange(len(text) + 1)
    name, body = text[:cut][:40] or None, text[cut:]
    id = random.choice((None, "1-2-3", text[-20:]))
    try:
        block = encode_event(name, body, id)
    except Internal:
        held(any(each and re.search("[\r\n\0]", each) for each in (name, id)), "refused for nothing", name, id)
        return False
    frames = _parsed(pieces(random, block), 10_000_000)
    wanted = _LINE_ENDS.sub("\n", body).encode("utf-8", "replace").decode()
    held(frames is not None and [type(frame) for frame in frames] == [EventFrame], "not one event", block)
    held(frames == [EventFrame(wanted, _as_read(name) or "message", _as_read(id) or "")], "it differs", block)
    return True


def _as_read(text: str | None) -> str:
    return (text or "").encode("utf-8", "replace").decode()


def _spliced(data: bytes, random: Random) -> bool:
    """Check the native wire: an event's JSON is sent unchanged, or encoding refuses it."""
    try:
        blocks = [
            Frame("c1", data, 1, 7).for_base(3),
            snapshot_frame("c1", data, 1, 7),
            transient_frame("c1", data),
        ]
    except Internal:
        return False
    for block in blocks:
        frames = _parsed([block], 10_000_000) or []
        held(len(frames) == 1 and isinstance(frames[0], EventFrame), "an event forged another", block)
    return True


def stream_targets() -> list[Target]:
    streams = [b"".join(Frame("c1", each, 1, at).for_base(0) for at, each in enumerate(corpus.events()[:8], 1))]
    streams += [
        snapshot_frame("c1", corpus.events()[-1], 1, 7) if corpus.events()[-1][:8] == b'{"type":' else b": x\n\n"
    ]
    streams += [
        b"retry: 3000\n\n: hb 1\n\nevent: a\ndata: 1\ndata: 2\nid: 3\n\n",
        b"\xef\xbb\xbfdata\r\rdata: x\r\n\r\n",
    ]
    models = [*ANTHROPIC, *OPENAI_CHAT, *OPENAI_RESPONSES]
    texts = [b"hello\nthere", b"a\r\nb\rc", "\u2028é\0".encode(), b"", b"data: x\n\n"]
    return [
        Target("sse-frames", _frames, [*streams, *models], weight=12),
        Target("sse-splitter", _splitter, [*streams, *models], weight=8),
        Target("sse-written", _written, texts),
        Target("sse-spliced", _spliced, corpus.events(), weight=2),
    ]
