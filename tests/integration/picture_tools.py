"""Tools whose results are more than a short text, for the tests of attachments: `serve --app` takes this file."""

import base64

from tests.unit.pictures import PNG, data_url, png_of
from threadcast.tools.python import tool


@tool()
def draw() -> str:
    """Returns two pictures, one of them large, between words."""
    return f"Here they are:\n{data_url(PNG)}\nand\n{data_url(png_of(100_000))}\ndone"


@tool()
def long_report() -> str:
    """Returns more text than a message may hold."""
    return "report " * 60_000


@tool()
def broken_picture() -> str:
    """Returns a part that is declared as a picture but is not a picture."""
    return "data:image/png;base64," + base64.b64encode(b"not a picture").decode()
