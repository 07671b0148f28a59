"""Every bound that an operator may move: its unit, its default, and when to change it."""

from typing import Annotated

from msgspec import Meta

from server.settings.values import Bytes, Count, Seconds, Section

__all__ = ["Limits"]


class Limits(Section, frozen=True):
    worker_max_chats: Count = 2_000
    """Chats with an open run in one worker. Lower it on small machines; more workers take the rest."""

    lease_seconds: Seconds = 3.5
    """How long a dead worker's chats wait for another: work goes on after at most this and a sweep. Raise it on
    machines that stall for seconds."""

    beat_seconds: Seconds = 1.1
    """How often a worker says that it is alive; three times within a lease, so that two lost beats cost nothing."""

    sweep_seconds: Seconds = 0.4
    """How often a worker looks for chats that wait. Raise it to spare the store when many workers share it."""

    drain_seconds: Seconds = 5.0
    """What a stopping process gives running work to reach a safe point. Below the 10 s that container engines wait
    before they kill."""

    retire_seconds: Annotated[float, Meta(ge=0, le=300)] = 0.0
    """How long a web process that was told to stop still serves, while /readyz says so. Set it above the interval at
    which a balancer asks, so that nobody is sent to a port that is closed."""

    body_max_bytes: Bytes = 16_777_216
    """The largest request body. Raise it for large images, and the proxy's limit with it."""

    import_max_bytes: Annotated[int, Meta(ge=1, le=1_099_511_627_776)] = 1_073_741_824
    """The largest body of an import. It is kept in a file of the directory for temporary files (`TMPDIR`) while it is
    read, so that much room must be there. Lower it where callers are not trusted with the disk."""

    import_max_messages: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Messages, payloads and background agents of one imported chat, together. A worker holds a chat that runs in
    memory; raise it with that in mind."""

    body_timeout_seconds: Seconds = 30.0
    """How long a request body may take to arrive, and a second more for each 32 KiB of it that came. Raise it when
    clients sit behind links that stall."""

    subscriber_buffer_bytes: Bytes = 262_144
    """What waits for one slow reader before it is given a snapshot instead. Memory: this times the slow readers."""

    subscriber_stall_seconds: Seconds = 60.0
    """A reader that takes no byte for so long is disconnected."""

    streams_per_principal: Count = 256
    """Open event streams of one caller in one process; more are answered 429. Raise it when all users of a GUI come
    with one token."""

    streams_max: Count = 20_000
    """Open event streams of one process; more are answered 429. Lower it on small machines: an idle one costs 16 kB."""

    heartbeat_seconds: Annotated[float, Meta(gt=0, le=40)] = 15.0
    """Silence after which a stream says that it lives. Clients give up after 45 s. Lower it below the idle timeout of
    a proxy in between."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] = 20
    """Model calls in one run. Raise it for agents that work long."""

    answer_timeout_seconds: Seconds = 1_800.0
    """For one answer of a model, however it drips; `idle_timeout_seconds` of its provider ends silence sooner. Raise it
    for models that think for longer than half an hour."""

    tool_timeout_seconds: Seconds = 30.0
    """For tools that name no timeout of their own."""

    turns_per_hour: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """Runs that one caller may begin within an hour; more are answered 429. 0: no bound. Set it where callers are not
    trusted with the bill; `auth.tokens.turns_per_hour` says otherwise for one."""

    turns_per_day: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """The same within 24 hours."""

    trace_hours: Annotated[int, Meta(ge=0, le=720)] = 24
    """How long the traces of runs are kept, after the last one of their chat. 0: none are made. Raise it to look into
    what happened last week; a chat keeps its newest 200 records, a few hundred kB."""

    def __post_init__(self) -> None:
        if self.beat_seconds * 2 > self.lease_seconds:
            raise ValueError("beat_seconds must be at most half of lease_seconds, or one late beat loses every chat")
