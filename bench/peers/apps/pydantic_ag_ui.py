"""An AG-UI server: an agent of pydantic-ai behind its `AGUIAdapter`, as its documentation shows it, under uvicorn in
the peer's own environment; our code does not import it."""

from pydantic_ai import Agent
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

agent = Agent("openai-chat:scripted")


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


async def health(_: Request) -> Response:
    return PlainTextResponse("ok")


app = Starlette(routes=[Route("/", run, methods=["POST"]), Route("/", health, methods=["GET"])])
