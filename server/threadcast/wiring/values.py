"""Turns settings into the objects that the parts of a process need: authenticators, quotas, traces, reasons."""

from threadcast.actor.traces import Traces
from threadcast.agent_loop.reasons import Reasons
from threadcast.api.auth import Authenticator, LocalAuthenticator, TokenAuthenticator
from threadcast.api.quotas import Quota, Quotas
from threadcast.base.redaction import Redactor
from threadcast.base.telemetry import Metrics
from threadcast.credentials import CredentialCache
from threadcast.settings import Settings
from threadcast.settings.secrets import secrets_of
from threadcast.store.ports import Store
from threadcast_protocol.wire.principal import Principal

__all__ = ["TURNS_PER_HOUR", "authenticator_of", "credential_cache_of", "quotas_of", "reasons_of", "traces_of"]


TURNS_PER_HOUR, TURNS_PER_DAY = 1_000, 10_000
"""The quota of a caller with a token if the operator has set no quota. People begin fewer than 100 runs an hour; a
program that begins a run every four seconds stays just below this quota."""


def authenticator_of(settings: Settings) -> Authenticator:
    """Return an authenticator of bearer tokens if tokens are configured, else an authenticator that knows a single
    local caller."""
    principals = {
        token.sha256: Principal(
            token.id,
            permissions=tuple(sorted(token.permissions)),
            roles=tuple(sorted(token.roles)),
            approves_for=tuple(sorted(token.approves_for)),
        )
        for token in settings.auth.tokens
    }
    return TokenAuthenticator(principals) if principals else LocalAuthenticator()


def credential_cache_of(settings: Settings, store: Store) -> CredentialCache:
    """Return an empty cache of the credentials that callers send for tools; it never takes a token of this server."""
    return CredentialCache(store, [token.sha256 for token in settings.auth.tokens])


def traces_of(settings: Settings, store: Store, metrics: Metrics) -> Traces | None:
    """Return the traces that workers write; None if traces are switched off."""
    ttl_seconds = settings.limits.trace_hours * 3_600
    if not ttl_seconds:
        return None
    return Traces(store, metrics, Redactor(secrets_of(settings)), ttl_seconds=ttl_seconds)


def reasons_of(settings: Settings) -> Reasons:
    """Return the object that decides which part of a provider's error message people see."""
    return Reasons(Redactor(secrets_of(settings)), is_shown=settings.models.show_reasons)


def quotas_of(settings: Settings, store: Store, metrics: Metrics) -> Quotas:
    """Return the quotas of runs for each caller. Without tokens all callers count as one caller, so a quota would
    protect no other caller, and no quota is set by default."""
    limits, has_tokens = settings.limits, bool(settings.auth.tokens)
    default = Quota(
        TURNS_PER_HOUR * has_tokens if limits.turns_per_hour is None else limits.turns_per_hour,
        TURNS_PER_DAY * has_tokens if limits.turns_per_day is None else limits.turns_per_day,
    )
    own = {
        token.id: Quota(
            default.per_hour if token.turns_per_hour is None else token.turns_per_hour,
            default.per_day if token.turns_per_day is None else token.turns_per_day,
        )
        for token in settings.auth.tokens
    }
    return Quotas(store, metrics, default, own)
