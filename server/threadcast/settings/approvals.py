"""The settings of approvals, which apply to all chats."""

from threadcast.settings.values import Section

__all__ = ["Approvals"]


class Approvals(Section, frozen=True):
    require_input_hash: bool | None = None
    """Whether an approval must name the arguments that were shown, by their hash (`input_hash`). Unset: yes, once
    auth.tokens are set, because an approval without the hash may come from a program that showed no arguments. The
    page, the terminal and both clients always send the hash. Set it to false if people approve with an older program
    that cannot send the hash."""
