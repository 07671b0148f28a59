"""Which kinds of provider come with an extra, and whether it is there. Imports none of their SDKs."""

from importlib.util import find_spec

__all__ = ["missing_extra"]

_MODULES = {"anthropic": "anthropic", "google": "google.genai"}
"""The extra, which is called like the kind, and the SDK that it installs."""


def missing_extra(kind: str) -> str | None:
    """How to install what providers of this kind need, or None when it is there."""
    module = _MODULES.get(kind)
    try:
        is_there = module is None or find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it is not there either
        is_there = False
    return None if is_there else f"pip install 'threadcast[{kind}]'"
