"""Google's API as the Gemini CLI calls it, as a program: `python -m tests.peers.gemini_model PORT DIRECTORY`.

The last words of the user choose the answer. For `write` the model calls the tool `write_file`, for `wait` it streams
text without end, and it repeats all other words. Each request appends a line to DIRECTORY/asked: the words, and the
whole request.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def told(*parts: dict[str, Any]) -> dict[str, Any]:
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


def words_of(contents: list[Any]) -> str:
    """Return the last words of the user; '' if the last content is the result of a call."""
    last = contents[-1]["parts"]
    if any("functionResponse" in part for part in last):
        return ""
    return str(last[-1].get("text", "")).strip()


async def answers(words: str) -> AsyncIterator[dict[str, Any]]:
    match words.split():
        case []:
            yield told({"text": "It is written."})
        case ["write", name]:
            yield told({"text": "I write it. "})
            call = {"name": "write_file", "args": {"file_path": name, "content": "from the agent\n"}}
            yield told({"functionCall": call})
        case ["wait", *_]:
            while True:
                yield told({"text": "I wait. "})
                await asyncio.sleep(0.1)
        case _:
            yield told({"text": f"You said {words}."})


async def model(request: Request) -> Response:
    asked = await request.json()
    if request.path_params["method"].endswith(":countTokens"):
        return JSONResponse({"totalTokens": 10})
    if "tools" not in asked:  # a request that the program makes for itself, such as which model to take
        return JSONResponse(told({"text": "{}"}))
    words = words_of(asked["contents"])
    with (Path(sys.argv[2]) / "asked").open("a") as file:
        file.write(json.dumps([words, json.dumps(asked["contents"])]) + "\n")

    async def stream() -> AsyncIterator[str]:
        async for each in answers(words):
            yield f"data: {json.dumps(each)}\r\n\r\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/v1beta/models/{method}", model, methods=["POST"])])
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
