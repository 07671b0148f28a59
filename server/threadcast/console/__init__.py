"""The subcommands of `threadcast`, one file for each subcommand, and the parts of the terminal client.

The package is called `console` because "command" means a client's request to a chat.
"""

import sys

__all__ = ["refuse"]


def refuse(sentence: str, exit_code: int = 1) -> int:
    """Print why a command cannot be carried out, in one line on standard error. Returns the exit code."""
    print(f"threadcast: {sentence}", file=sys.stderr)
    return exit_code
