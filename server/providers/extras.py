"""Which providers come with an extra, and whether it is installed. Imports none of their SDKs."""

from importlib.util import find_spec

__all__ = ["missing_extra"]

_MODULES = {
    "anthropic": ["anthropic"],
    "anthropic-vertex": ["anthropic", "google.auth", "requests"],
    "google": ["google.genai"],
}
"""The modules that each extra installs. Extras are called like the kind; `anthropic-vertex` adds Google's sign-in."""


def missing_extra(kind: str, *, on_vertex: bool = False) -> str | None:
    """The command that installs what a provider of this kind needs, or None when all of it is installed.

    `on_vertex`: the provider is asked on Vertex AI (`vertex_project` is set).
    """
    extra = f"{kind}-vertex" if on_vertex and f"{kind}-vertex" in _MODULES else kind
    try:
        is_there = all(find_spec(module) is not None for module in _MODULES.get(extra, ()))
    except ModuleNotFoundError:  # the package above it is not there either
        is_there = False
    return None if is_there else f"pip install 'threadcast[{extra}]'"
