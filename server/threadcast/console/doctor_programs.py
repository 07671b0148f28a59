"""The check of `threadcast doctor` for programs that tools start: as which user they run, and which files they can
read."""

import os
import sys

from threadcast.console.doctor_services import Finding
from threadcast.settings import Settings
from threadcast.wiring.tools import programs_user_in

__all__ = ["program_findings"]


def program_findings(settings: Settings) -> list[Finding]:
    """Return a finding about the files that programs of tools can read; no finding if neither MCP servers nor the
    operator's tools may start programs. A server is assumed to run as the user that runs this check."""
    what = "programs of tools"
    if not settings.server.app and not any(each.enabled and each.command for each in settings.mcp.values()):
        return []
    try:
        user = programs_user_in(settings)
    except ValueError as wrong:
        return [Finding("fail", what, str(wrong))]
    if user is not None:
        return [
            Finding(
                "ok",
                what,
                f"run as the user {user.name}, who reads neither the server's environment nor its store. They may "
                f"write to their HOME, {user.home}, and elsewhere only where that user may, so perhaps not to the "
                "working directory",
            )
        ]
    if os.geteuid() == 0:
        return [
            Finding(
                "note",
                what,
                "run as root: they can read the server's environment, with all keys, and its store. Remove "
                "server.programs_user, or name another user",
            )
        ]
    hidden = "though not its environment" if sys.platform == "linux" else "and its environment, with all keys"
    return [
        Finding(
            "note",
            what,
            f"run as the server's own user: they can read its files and its private store, {hidden}. Only a server "
            "that runs as root can start them as another user (server.programs_user)",
        )
    ]
