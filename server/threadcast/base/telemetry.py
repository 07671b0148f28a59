"""Sets up the logging of the process, and defines the names of all metrics.

`configure_logging` sets up structlog once, at start. Each event is one line on standard error: JSON in production,
readable text on a terminal. Log lines of other libraries are processed in the same way. `Metrics` has every metric, on
a registry of its own; the process makes one instance and passes it on as an argument. Secrets and message texts are not
logged: values under a secret's name are masked, and libraries that would log whole requests are silenced.
"""

import logging
import logging.config
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import IO, Any, Literal, TypeAlias

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from threadcast.base.loop_metrics import LoopCounter, LoopGauge, LoopHistogram
from threadcast.base.redaction import Redactor

__all__ = ["METRICS_CONTENT_TYPE", "LogFormat", "LogLevel", "Metrics", "configure_logging", "mask_secrets"]

LogFormat: TypeAlias = Literal["auto", "json", "pretty"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Fields: TypeAlias = MutableMapping[str, Any]  # Any: fields of a log line have any type

SECRET_NAMES = ("authorization", "api_key", "cookie", "password", "secret", "token")
"""Names of secrets. A field is masked if its name is one of these names, or ends with `_` and one of these names."""

_QUIET_LOGGERS = ("openai", "httpx2", "httpcore2", "mcp", "asyncio", "uvicorn.access")
"""Loggers that write request bodies, headers, ids of sessions or a line per request at their debug and info levels. The
server logs requests itself."""


def configure_logging(
    log_format: LogFormat = "auto",
    level: LogLevel = "info",
    stream: IO[str] | None = None,
    redactor: Redactor | None = None,
) -> None:
    """Send all logging of the process to `stream` (standard error). Call this function once, before any resource is
    opened.

    `log_format` auto means pretty when the stream is a terminal, otherwise JSON. `redactor` masks its secrets in whole
    lines, tracebacks included. Later calls replace earlier ones.
    """
    known = redactor or Redactor()

    out = stream if stream is not None else sys.stderr
    is_pretty = log_format == "pretty" or (log_format == "auto" and out.isatty())
    unseen = _UNSEEN_BUT_COLOURS if is_pretty and out.isatty() else _UNSEEN

    def masked(_logger: object, _method: str, line: Any) -> str:  # Any: structlog's type of a rendered line
        return unseen.sub(_escaped, known.text(str(line)))

    common: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_pretty else "iso", utc=not is_pretty),
        mask_secrets,
    ]
    last: list[structlog.types.Processor]
    if is_pretty:
        # If rich is installed, it would show local variables in tracebacks, and with them keys and texts.
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # tests configure logging more than once; a lookup costs about 1 µs
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, _name_foreign],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *last,
                masked,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, line ends of Unicode, and marks that change the direction of text. Names
that callers choose may contain them, and on a terminal they could hide or forge lines. If these characters are escaped,
a JSON line is still JSON."""

_UNSEEN_BUT_COLOURS = re.compile(rf"(?!\x1b\[[0-9;]{{0,16}}m){_UNSEEN.pattern}")
"""The same characters, except in the colour codes of our own lines (SGR, ECMA-48 §8.3.117). Values that
contain an escape character are quoted before the line is coloured."""


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def mask_secrets(_logger: object, _method: str, fields: Fields) -> Fields:
    """Mask the values under a secret's name, also inside mappings. A structlog processor."""
    for name, value in fields.items():
        if _is_secret(name):
            fields[name] = "***"
        elif isinstance(value, Mapping):
            fields[name] = mask_secrets(None, "", dict(value))
    return fields


def _is_secret(name: object) -> bool:
    plain = str(name).lower().replace("-", "_")
    return any(plain == secret or plain.endswith("_" + secret) for secret in SECRET_NAMES)


def _name_foreign(_logger: object, _method: str, fields: Fields) -> Fields:
    """Move the message of another library's line into the field `text`, so that `event` is always a name from our
    code."""
    record = fields.get("_record")
    fields["text"] = fields.get("event")
    fields["event"] = "library.logged"
    fields["logger"] = record.name if isinstance(record, logging.LogRecord) else ""
    return fields


def _to_json(fields: Fields, **_options: object) -> str:
    return msgspec.json.encode(fields, enc_hook=repr).decode()


METRICS_CONTENT_TYPE = CONTENT_TYPE_LATEST

_SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Buckets around the 10 ms and 30 ms of the budget (DESIGN §13)."""

_LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets from the usual lag of a busy loop to a lag that loses leases (3.5 s)."""

_WAIT_SECONDS = (*_SHORT_SECONDS, 5.0, 10.0, 30.0, 60.0)
"""Buckets from an idle worker to far too few workers: an alarm at 5 s needs larger buckets."""

_MODEL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Buckets from an instant model to a model that must load first."""


class Metrics:
    """All metrics. An attribute is the metric's name without `threadcast_` and `_total`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        count, gauge, histogram = self._counter, self._gauge, self._histogram

        # The edge.
        self.http_requests = LoopCounter(
            "threadcast_http_requests", "HTTP requests answered", self.registry, ("route", "status")
        )
        self.connections_refused = count(
            "connections_refused_total", "Connections closed before their request was known", "reason"
        )
        self.commands_accepted = count("commands_accepted_total", "Commands stored in an inbox", "type")
        self.params_ignored = count("params_ignored_total", "Unknown keys of parameters, which were ignored")
        self.commands_refused = count("commands_refused_total", "Commands refused before they were stored", "code")

        self.turns_refused = count("turns_refused_total", "Commands refused because their caller's quota is used up")

        self.body_bytes_inflight = gauge("body_bytes_inflight", "Bytes of request bodies that are being read")
        self.answer_bytes_inflight = gauge(
            "answer_bytes_inflight", "Bytes of chats and files that clients have asked for and not read yet"
        )
        self.storage_refused = count("storage_refused_total", "Requests refused because their caller stores too much")

        # The store.
        self.appends = LoopCounter("threadcast_appends", "Entries appended to logs", self.registry)
        self.append_seconds = LoopHistogram(
            "threadcast_append_seconds", "Seconds from an append to the store's answer", _SHORT_SECONDS, self.registry
        )
        self.store_errors = count("store_errors_total", "Calls to the store that failed", "kind")

        self.store_used_share = gauge(
            "store_used_share", "Share of maxmemory that the fullest server of the store uses; 0 without a maxmemory"
        )
        self.oldest_due_seconds = gauge("oldest_due_seconds", "Seconds that the oldest due chat has waited")

        # Actors.
        self.chats_active = gauge("chats_active", "Chats that this worker holds")
        self.worker_load = gauge("worker_load", "Load of this worker; from 1 on it leaves new chats to other workers")
        self.append_pause_seconds = gauge("append_pause_seconds", "Present pause between two appends of a chat")
        self.runs_waiting = gauge("runs_waiting", "Open runs that wait, by what they wait for", "reason")
        self.inbox_wait_seconds = histogram(
            "inbox_wait_seconds", "Seconds that a command waited in an inbox until its worker read it", _WAIT_SECONDS
        )
        self.fenced = count("fenced_total", "Appends refused because another worker had written")
        self.takeovers = count("takeovers_total", "Chats taken over from a lost worker")
        self.owners_silent = count("owners_silent_total", "Buckets whose owner was found dead by its closed connection")
        self.quarantined = count("quarantined_total", "Chats suspended because their log cannot be folded")
        self.poisoned = count("poisoned_total", "Runs and commands ended because they crashed workers")
        self.runs_finished = count("runs_finished_total", "Runs ended", "outcome")

        # Models and tools.
        self.model_calls = count(
            "model_calls_total", "Model calls ended, by outcome or error code", "provider", "outcome"
        )
        self.model_first_delta_seconds = histogram(
            "model_first_delta_seconds", "Seconds from a model call to its first delta", _MODEL_SECONDS
        )
        self.tool_calls = count("tool_calls_total", "Tool calls ended", "status")
        self.agent_operations = count("agent_operations_total", "Operations of durable agents ended", "kind", "outcome")

        self.traces_dropped = count("traces_dropped_total", "Records of traces that were not stored", "reason")

        # The fan-out to readers.
        self.subscribers_inflight = LoopGauge("threadcast_subscribers_inflight", "Open event streams", self.registry)
        self.append_to_send_seconds = LoopHistogram(
            "threadcast_append_to_send_seconds",
            "Seconds from the append of an entry, by the store's clock, to the readers' sockets",
            _SHORT_SECONDS,
            self.registry,
        )
        self.resyncs = count("resyncs_total", "Snapshots sent in the middle of a stream", "reason")
        self.streams_ended = count("streams_ended_total", "Event streams ended", "reason")
        self.relay_reloads = count("relay_reloads_total", "Times a relay read its chat again from the store", "reason")

        # The process.
        self.event_loop_lag_seconds = histogram(
            "event_loop_lag_seconds", "Seconds by which the event loop ran its timers late", _LAG_SECONDS
        )
        self.event_loop_blocked = count("event_loop_blocked_total", "Times the event loop was blocked for a second")

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format, whose content type is `METRICS_CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, namespace="threadcast", registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, namespace="threadcast", registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, meaning, namespace="threadcast", registry=self.registry, buckets=buckets)
