"""The errors that the operations of a durable agent raise. Each error is raised again, at the same operation, in a
replay."""

__all__ = ["CallDenied", "CallFailed", "OutcomeUnknown", "Rejected", "StepFailed"]


class StepFailed(Exception):
    """A step or the writing of an answer raised an exception. `kind` is the bare name of its class, and `message` its
    text (at most 2,000 characters); `step` is the name of the step or of the function that writes the answer."""

    def __init__(self, kind: str, message: str, step: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.step = step
        self.kind = kind
        self.message = message


class CallFailed(Exception):
    """A tool call failed or was ended, or a sub-chat could not be opened. The text is the reason in the form that a
    model would read."""


class CallDenied(Exception):
    """A person or a policy denied a tool call. `note` is the person's note, '' if there is none."""

    def __init__(self, note: str = "") -> None:
        super().__init__(f"the call was denied{f': {note}' if note else ''}")
        self.note = note


class Rejected(Exception):
    """A person declined to answer a question. `note` is the person's note, '' if there is none."""

    def __init__(self, note: str = "") -> None:
        super().__init__(f"the question was rejected{f': {note}' if note else ''}")
        self.note = note


class OutcomeUnknown(Exception):
    """The worker died during a step or a tool call that may not run twice, so it is unknown whether the step or call
    had its effect."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the outcome of {name!r} is unknown: its worker died while it ran")
        self.name = name
