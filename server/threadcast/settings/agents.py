"""The settings `[agents.NAME]` of agents that are other programs or servers."""

from typing import Literal

from threadcast.settings.shown import check_http_url
from threadcast.settings.values import Name, Seconds, Secret, Section

__all__ = ["ConfiguredAgent"]


class ConfiguredAgent(Section, frozen=True):
    """An agent that is another program or server. The agent answers chats with the mode NAME."""

    kind: Literal["acp", "ag_ui"]
    """acp: a coding agent that speaks the Agent Client Protocol, as a child process. ag_ui: a remote agent that speaks
    AG-UI."""

    title: str = ""
    description: str = ""

    url: str = ""
    """ag_ui: the address that receives the runs by POST. Redirects are not followed."""

    headers: dict[str, Secret] = {}
    """ag_ui: headers of every request, such as Authorization."""

    command: list[str] = []
    """acp: the program and its arguments, such as ["my-coder", "--acp"]. The program starts in the folder of a chat, so
    a part that begins with ./ or ../ is made absolute; in threadcast.toml such a part is relative to that file."""

    env: list[str] = []
    """acp: names of the server's environment variables that the program gets. The program also gets PATH, HOME, LANG
    and TMPDIR, and no other variables."""

    workspace: str = ""
    """acp: the folder in which each chat has a folder of its own. A relative path in threadcast.toml starts from that
    file. Unset: `workspaces/NAME` in `store.data_dir`."""

    files: Literal["workspace", "client", "none"] = "workspace"
    """acp: how the agent reaches files. workspace: through the server, below the chat's folder. client: through the
    client that watches the chat, such as an editor; this client then runs the agent's commands, too. none: the agent
    opens files itself, with the rights of its user. The Gemini CLI needs `none`, because it cannot write new files
    through a server."""

    mode: str = ""
    model: str = ""
    """acp: the mode and the model of new sessions, by the names that the agent gives them. Unset: the agent's own
    defaults."""

    idle_seconds: Seconds = 600.0
    """acp: seconds without a prompt after which the program of a chat is ended."""

    silence_seconds: Seconds = 300.0
    """Maximum seconds without a byte from the agent while it works. Set it higher if the agent runs long commands."""

    policies: dict[Name, Literal["auto", "ask", "deny"]] = {}
    """The policies for approvals that the agent requests for its own tools, by the name of the tool. `auto` approves
    without asking a person, `deny` rejects, and the default `ask` asks a person. acp: the names are ACP's kinds of
    calls, such as `edit` and `execute`."""

    enabled: bool = True

    def __post_init__(self) -> None:
        if self.kind == "ag_ui":
            if not self.url:
                raise ValueError('an agent of the kind "ag_ui" needs a url')
            check_http_url("url", self.url)
        elif not self.command or not self.command[0]:
            raise ValueError('an agent of the kind "acp" needs a command, such as ["my-coder", "--acp"]')
