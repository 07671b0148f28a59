"""Determines which providers need an extra, and whether it is installed. Imports no SDK."""

from importlib.util import find_spec

__all__ = ["missing_extra"]

_MODULES = {
    "anthropic": ["anthropic"],
    "anthropic-vertex": ["anthropic", "google.auth", "requests"],
    "google": ["google.genai"],
}
"""The modules that each extra installs. An extra has the name of its kind; `anthropic-vertex` adds Google's sign-in."""


def missing_extra(kind: str, *, on_vertex: bool = False) -> str | None:
    """Return the command that installs the missing dependencies of a provider of this kind, or None if none are
    missing.

    `on_vertex`: the provider is on Vertex AI (`vertex_project` is set).
    """
    extra = f"{kind}-vertex" if on_vertex and f"{kind}-vertex" in _MODULES else kind
    try:
        is_there = all(find_spec(module) is not None for module in _MODULES.get(extra, ()))
    except ModuleNotFoundError:  # the module's parent package is missing, too
        is_there = False
    return None if is_there else f"pip install 'threadcast[{extra}]'"
