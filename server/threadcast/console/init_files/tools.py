"""Tools that this server offers to models: each function below is one.

    threadcast serve --app tools.py

The name of the function, its docstring and its type hints tell the model what the tool does and what it takes. Change
these, or add your own; the server reads this file when it starts. In a chat without a model key, choose the model
demo/tools and write a line such as

    call count_words {"text": "one two three"}
"""

from pathlib import Path
from typing import Annotated

from threadcast import ToolContext, tool


@tool(retry="safe")  # the call changes nothing, so it may run again after a crash
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(policy="ask")  # a person approves each call, in any tab
def add_note(note: Annotated[str, "one line of text"], ctx: ToolContext) -> str:
    """Add a line to the notes."""
    notes = Path(ctx.data_dir, "notes.txt")  # the directory that tools may write to
    notes.parent.mkdir(parents=True, exist_ok=True)
    with notes.open("a", encoding="utf-8") as file:
        file.write(f"{note}\n")
    return f"The note is in {notes}."
