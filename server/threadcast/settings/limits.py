"""The limits that an operator can change, each with its unit, its default, and when to change it."""

from typing import Annotated

from msgspec import Meta

from threadcast.chat.params import MAX_ROUNDS
from threadcast.settings.values import Bytes, Count, Seconds, Section

__all__ = ["DEFAULT_LIMITS", "Limits"]


class Limits(Section, frozen=True):
    worker_max_chats: Count = 2_000
    """Maximum chats with an open run in one worker, even if the worker has time for more. A busy worker leaves further
    chats to others before it reaches this limit (`threadcast_worker_load`). Lower it on machines with little memory."""

    runs_per_principal: Annotated[int, Meta(ge=1, le=100_000)] = 64
    """Maximum runs of one caller that one worker works on at once; further runs wait, and their chats show that they
    wait. Runs that wait for a person, a client or sub-chats do not count. 64 is four chats with 16 running sub-chats
    each, and 3 % of `worker_max_chats`. Raise it when all users of a GUI share one token; without tokens all people
    count as one caller."""

    lease_seconds: Seconds = 3.5
    """Seconds for which a worker owns a chat without renewal. After a worker dies, another worker continues its chats
    after at most this time plus one sweep. Raise it on machines that stall for seconds."""

    drain_seconds: Seconds = 5.0
    """Seconds that a stopping process gives running work to reach a safe point. Keep it below the 10 s after which
    container engines kill a process."""

    compact_after_seconds: Annotated[float, Meta(ge=0, le=600)] = 60.0
    """Seconds that a chat is at rest before its log is compacted. A log of 50 short turns takes 225 kB before and 10 kB
    after, and its entries remain for another hour in any case. Lower it if the store's memory is small; each compaction
    takes about half as much CPU time as a short turn. 0: at once."""

    retire_seconds: Annotated[float, Meta(ge=0, le=300)] = 0.0
    """Seconds that a web process keeps serving after it was told to stop, while /readyz reports that it stops. Set it
    above the interval at which a load balancer asks, so that the balancer sends no caller to a closed port."""

    header_max_bytes: Annotated[int, Meta(ge=4_096, le=1_048_576)] = 32_768
    """Maximum bytes of the request line and the headers of a request together; a larger request is answered with 431.
    Browsers send 2 kB, and cookies of other services on the same host up to 16 kB. Raise it where a proxy adds large
    headers."""

    headers_max: Annotated[int, Meta(ge=20, le=10_000)] = 100
    """Maximum headers of a request; a request with more headers is answered with 431. Browsers send about 20, and
    chains of proxies add a dozen."""

    header_timeout_seconds: Seconds = 10.0
    """Seconds in which a new connection must send the headers of its first request, and in which headers that have
    begun must be complete; otherwise the connection is closed. Raise it for clients behind very slow links."""

    connections_per_address: Count = 1_000
    """Maximum open connections of one address in one process; further connections are answered with 429. An office
    behind one address has about three connections for each person. Connections from this machine and from
    `server.trusted_proxies` are not counted."""

    connections_max: Count = 40_000
    """Maximum open connections of one process, two for each of `streams_max`; further connections are answered with
    503. If the system allows fewer open files, the limit is three quarters of their number, since the store, models and
    tools need the rest."""

    unauthorized_per_minute: Count = 30
    """Answers 401 that an address gets within a minute before further answers 401 are delayed. The page asks about five
    times before a person signs in. One /64 network of IPv6 counts as one address. Requests with a valid token are never
    delayed. Raise it where many people without a session open the page behind one address."""

    unauthorized_delay_seconds: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Seconds by which each further answer 401 to such an address is delayed. At most 10 answers to one address and 500
    in all are delayed at once; any further answer is sent at once and its connection is closed. 0: no wait."""

    body_max_bytes: Bytes = 16_777_216
    """Maximum bytes of a request body. Raise it for large images, together with the limit of your proxy."""

    body_max_values: Annotated[int, Meta(ge=1_000, le=10_000_000)] = 50_000
    """Maximum values (numbers, texts, lists, objects) in the JSON of one request, and in one line of an import; a
    request with more is answered with 413. Decoding and checking this many values takes 40 ms; the worst 16 MiB would
    take seconds. A restored history of 1,000 messages has about 10,000 values. Raise it for longer histories."""

    import_max_bytes: Annotated[int, Meta(ge=1, le=1_099_511_627_776)] = 1_073_741_824
    """Maximum bytes of the body of an import. A temporary file in `TMPDIR` holds the body while it is read, so the disk
    needs this much free space. Lower it if callers could fill the disk."""

    import_max_messages: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Maximum messages, payloads and background agents of one imported chat, counted together. A worker holds a running
    chat in memory, so a higher limit needs more memory."""

    storage_per_principal_bytes: Annotated[int, Meta(ge=0, le=1_099_511_627_776)] = 4_294_967_296
    """Maximum bytes of the store that the chats of one caller may fill, including files of chats that do not exist yet;
    further messages and files are refused with 413 until the caller deletes chats. 4 GiB are some 2,000 photos of a
    phone or a million short messages; without tokens all people are one caller. Lower it if a few callers together
    could fill the store. 0: no limit."""

    chats_per_principal: Annotated[int, Meta(ge=0, le=10_000_000)] = 100_000
    """Maximum chats of one caller, sub-chats included; a caller with this many must delete a chat before creating
    another. A person creates some thousands in a year, and a program that acts for many people more. 0: no limit."""

    bodies_per_principal_bytes: Bytes = 17_825_792
    """Maximum bytes of request bodies of one caller that one process reads at the same time; further bodies are
    answered with 429, and our clients send them again later. 17 MiB hold one body of the largest size and some small
    bodies. With 17 MiB, commands and files of one caller made the process grow by at most 43 MB (`scripts/bench
    floods`), with 32 MiB by 60 MB and more. Raise it with `body_max_bytes`, or when many people share one token."""

    bodies_max_bytes: Bytes = 134_217_728
    """Maximum bytes of request bodies of all callers that one process reads at the same time; further bodies are
    answered with 503. The bodies are held in memory. Only imports are files; those of one caller may have
    `import_max_bytes` together, and those of all callers twice as much."""

    answers_per_principal_bytes: Bytes = 12_582_912
    """Maximum bytes of chats and files that one process holds for one caller because its client has not read them yet.
    Further requests for chats and files wait for 10 s, and are then answered with 429; our clients ask again later. A
    client that reads is never refused, and a single answer may have any size. With 16 MiB, 200 clients that did not
    read made the process grow by 48 MB (`scripts/bench floods`). Raise it when many people with slow connections share
    one token."""

    answers_max_bytes: Bytes = 134_217_728
    """Maximum bytes of unread chats and files that one process holds for all callers; further requests are answered
    with 503."""

    body_timeout_seconds: Seconds = 30.0
    """Seconds in which a request body must arrive, plus one second for each 32 KiB received. The limit also applies to
    the rest of a body whose request was answered before the body ended. Raise it for clients with connections that
    stall."""

    subscriber_buffer_bytes: Bytes = 262_144
    """Maximum bytes that wait for one slow reader; beyond this limit the reader gets a snapshot instead. Each slow
    reader takes this much memory."""

    subscriber_stall_seconds: Seconds = 60.0
    """Seconds after which a reader of a stream or of any other answer is disconnected if it takes no bytes."""

    streams_per_principal: Count = 256
    """Maximum open event streams of one caller in one process; further streams are answered with 429. Raise it when all
    users of a GUI share one token; the next two limits grow with it unless they are set."""

    watched_chats_per_principal: Count | None = None
    """Maximum chats on one caller's streams of several chats, in one process; further chats are answered with 429. Each
    chat takes up to 23 kB, even if no chat has the given id. Unset: six for each of `streams_per_principal`, so 1,536,
    which take 35 MB. Raise it for clients that show very many chats at once."""

    stream_openings_per_second: Count | None = None
    """Streams that one caller may open per second in one process; the caller may open six times as many chats on
    streams of several chats. Further requests are answered with 429. After ten seconds without openings, all of
    `streams_per_principal` may be opened at once, as after a restart. Unset: a tenth of `streams_per_principal`, at
    least 25. Each opening occupies the process for 2 ms."""

    streams_max: Count = 20_000
    """Maximum open event streams of one process; further streams are answered with 429. Lower it on small machines: an
    idle stream takes 16 kB."""

    heartbeat_seconds: Annotated[float, Meta(gt=0, le=40)] = 15.0
    """Seconds of silence after which a stream sends a heartbeat. Clients give up after 45 s. Set it below the idle
    timeout of a proxy in between."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] = MAX_ROUNDS
    """Maximum model calls in one run. Raise it for agents with long tasks."""

    answer_timeout_seconds: Seconds = 1_800.0
    """Seconds for one whole answer of a model. `idle_timeout_seconds` of its provider ends a silent call sooner. Raise
    it for models that think for longer than half an hour."""

    agent_awake_seconds: Seconds = 600.0
    """Seconds that the code of a durable agent may work without beginning or ending an operation. The time in which the
    code waits for tools, sub-chats, clients and people does not count. Raise it for steps that take longer."""

    client_tools: bool = True
    """Whether a message may define tools that its sender carries out (PROTOCOL §12). Their descriptions reach only the
    model of the sender's own chat. Set it to false if models should see your tools only."""

    tool_timeout_seconds: Seconds = 30.0
    """Seconds for a call of a tool without a timeout of its own."""

    question_seconds: Seconds = 3_600.0
    """Seconds that a tool which asks a person waits for the answer; during this time the tool's own timeout does not
    run. Until then the worker keeps the chat. Raise it, up to a day, if people answer later."""

    turns_per_hour: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """Maximum runs that one caller may begin within an hour; further runs are answered with 429. 0: no limit. Unset:
    1,000 once there are tokens, else no limit. Set it where callers could run up costs that you do not accept;
    `auth.tokens.turns_per_hour` overrides it for one caller."""

    turns_per_day: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Maximum runs that one caller may begin within 24 hours. 0: no limit. Unset: 10,000 once there are tokens, else no
    limit."""

    trace_hours: Annotated[int, Meta(ge=0, le=720)] = 24
    """Hours that the traces of a chat's runs are kept after the latest trace. 0: no traces are made. Raise it to look
    into older runs; a chat keeps its newest 200 records, a few hundred kB."""


DEFAULT_LIMITS = Limits()
"""The limits of a server without a `[limits]` section."""
