"""The smallest possible POST of a command: it reads one JSON body, makes one XADD and answers 202. `bench/latency.py`
compares our POST with it."""

import os

import msgspec
import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["app"]

_store = redis.Redis.from_url(os.environ.get("BENCH_STORE_URL", "redis://127.0.0.1:6379"))


async def _post(request: Request) -> Response:
    body = msgspec.json.decode(await request.body())
    await _store.xadd(f"bare:{request.path_params['chat_id']}", {"body": msgspec.json.encode(body)})
    return Response(b'{"accepted":true}', 202, media_type="application/json")


app = Starlette(routes=[Route("/v1/chats/{chat_id}/commands", _post, methods=["POST"])])
