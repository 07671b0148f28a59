"""Logs and metrics: how the process speaks about itself, and the name of everything it counts.

`configure_logging` sets structlog up once, at start: JSON in production, pretty on a terminal, one line per event on
standard error. Whatever other libraries log takes the same way out. `Metrics` holds every metric of the house on a
registry of its own; it is made once by `app.py` or `worker.py` and passed down, there is no global one. What a metric
or a log line means to somebody who watches is not known here. The one rule: secrets and what people say are not
logged. A value under a secret's name is masked, and libraries that would log whole requests are kept quiet.
"""

import logging
import logging.config
import sys
from collections.abc import Mapping, MutableMapping
from typing import IO, Any, Literal, TypeAlias

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from server.redaction import Redactor

__all__ = ["METRICS_CONTENT_TYPE", "LogFormat", "LogLevel", "Metrics", "configure_logging", "mask_secrets"]

LogFormat: TypeAlias = Literal["auto", "json", "pretty"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Fields: TypeAlias = MutableMapping[str, Any]  # Any: a log line carries whatever its writer found worth saying

SECRET_NAMES = ("authorization", "api_key", "cookie", "password", "secret", "token")
"""A field whose name is one of these, or ends in `_` and one of these, is masked."""

_QUIET_LOGGERS = ("openai", "httpx2", "httpcore2", "mcp", "asyncio", "uvicorn.access")
"""At their debug and info levels these write request bodies, headers, ids of sessions or a line per request; we log
our own."""


def configure_logging(
    log_format: LogFormat = "auto",
    level: LogLevel = "info",
    stream: IO[str] | None = None,
    redactor: Redactor | None = None,
) -> None:
    """Send all logging of the process to `stream` (standard error), once, before anything opens.

    auto: pretty when the stream is a terminal, else JSON. `redactor` masks what it knows in whole lines, tracebacks
    included. Later calls replace earlier ones.
    """
    known = redactor or Redactor()

    def masked(_logger: object, _method: str, line: Any) -> str:  # Any: structlog's type of what a renderer returned
        return known.text(str(line))

    out = stream if stream is not None else sys.stderr
    is_pretty = log_format == "pretty" or (log_format == "auto" and out.isatty())
    common: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_pretty else "iso", utc=not is_pretty),
        mask_secrets,
    ]
    last: list[structlog.types.Processor]
    if is_pretty:
        plain = structlog.dev.plain_traceback  # rich, where it is installed, would show local variables: keys, words
        last = [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # tests and a second call may configure again; a lookup costs about 1 µs
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
    """A line of another library: its words become a field, so that event names stay a closed set of ours."""
    record = fields.get("_record")
    fields["text"] = fields.get("event")
    fields["event"] = "library.logged"
    fields["logger"] = record.name if isinstance(record, logging.LogRecord) else ""
    return fields


def _to_json(fields: Fields, **_options: object) -> str:
    return msgspec.json.encode(fields, enc_hook=repr).decode()


METRICS_CONTENT_TYPE = CONTENT_TYPE_LATEST

_SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Around the 10 ms and 30 ms of the budget (DESIGN §13)."""

_LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From what a busy loop always has to what costs a worker its leases (3.5 s)."""

_WAIT_SECONDS = (*_SHORT_SECONDS, 5.0, 10.0, 30.0, 60.0)
"""From a worker that is free at once to workers that are far too few: an alarm at 5 s needs buckets beyond it."""

_MODEL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From an instant model to a cold one that loads first."""


class Metrics:
    """Everything the house counts. An attribute is the metric's name without `threadcast_` and `_total`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        count, gauge, histogram = self._counter, self._gauge, self._histogram

        # The edge.
        self.http_requests = count("http_requests_total", "HTTP requests answered", "route", "status")
        self.commands_accepted = count("commands_accepted_total", "Commands laid in an inbox", "type")
        self.params_ignored = count(
            "params_ignored_total", "Keys of parameters that were left out, since nobody knows them"
        )
        self.commands_refused = count("commands_refused_total", "Commands refused before the inbox", "code")

        self.turns_refused = count("turns_refused_total", "Commands refused since their caller's quota is spent")

        # The store.
        self.appends = count("appends_total", "Entries appended to logs")
        self.append_seconds = histogram("append_seconds", "An append, until its answer", _SHORT_SECONDS)
        self.store_errors = count("store_errors_total", "Calls to the store that failed", "kind")

        self.oldest_due_seconds = gauge("oldest_due_seconds", "How long the oldest chat has waited for any worker")

        # Actors.
        self.chats_active = gauge("chats_active", "Chats that this worker holds")
        self.inbox_wait_seconds = histogram("inbox_wait_seconds", "A command, from inbox to taken up", _WAIT_SECONDS)
        self.fenced = count("fenced_total", "Appends refused because somebody else wrote")
        self.takeovers = count("takeovers_total", "Chats taken over from an owner that was lost")
        self.quarantined = count("quarantined_total", "Chats set aside because their log cannot be folded")
        self.poisoned = count("poisoned_total", "Runs and commands ended because they killed their owner repeatedly")
        self.runs_finished = count("runs_finished_total", "Runs ended", "outcome")

        # Models and tools.
        self.model_calls = count(
            "model_calls_total", "Model calls ended, by outcome or error code", "provider", "outcome"
        )
        self.model_first_delta_seconds = histogram(
            "model_first_delta_seconds", "A model call, until its first delta", _MODEL_SECONDS
        )
        self.tool_calls = count("tool_calls_total", "Tool calls ended", "status")

        self.traces_dropped = count("traces_dropped_total", "Records of traces that were not kept", "reason")

        # The way back to the readers.
        self.subscribers_inflight = gauge("subscribers_inflight", "Open event streams")
        self.append_to_send_seconds = histogram(
            "append_to_send_seconds", "An entry, from the store's clock to the readers' sockets", _SHORT_SECONDS
        )
        self.resyncs = count("resyncs_total", "Snapshots sent in the middle of a stream", "reason")
        self.streams_ended = count("streams_ended_total", "Event streams ended", "reason")
        self.relay_reloads = count("relay_reloads_total", "Times a relay read its chat anew", "reason")

        # The process.
        self.event_loop_lag_seconds = histogram(
            "event_loop_lag_seconds", "How late the event loop ran its timers", _LAG_SECONDS
        )
        self.event_loop_blocked = count("event_loop_blocked_total", "Times the event loop stood still for a second")

    def render(self) -> bytes:
        """All of it in the Prometheus text format, for `METRICS_CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, namespace="threadcast", registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, namespace="threadcast", registry=self.registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, meaning, namespace="threadcast", registry=self.registry, buckets=buckets)
