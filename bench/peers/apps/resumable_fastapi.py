"""fastapi-resumable-stream as its README shows it: start, resume and stop of a conversation's stream.

The producer is the official openai client; each chunk is one SSE event, as the README's front ends expect. It runs
under uvicorn in the peer's own environment; our code does not import it.
"""

import json
import os

from fastapi import FastAPI, Request, Response
from fastapi_resumable_stream import (
    ActiveStreamRegistry,
    ResumableStream,
    StopController,
    resume_conversation_stream,
    start_conversation_stream,
    stop_conversation_stream,
    streaming_response,
)
from openai import AsyncOpenAI
from redis.asyncio import Redis

app = FastAPI()
redis = Redis.from_url(os.environ["STORE_URL"], max_connections=2_000)
stream = ResumableStream(redis)
registry = ActiveStreamRegistry(redis)
stop = StopController(redis)
client = AsyncOpenAI()


async def call_llm(prompt: str):
    chunks = await client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": prompt}], stream=True
    )
    async with chunks:
        async for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                yield f"data: {json.dumps(chunk.choices[0].delta.content)}\n\n"


@app.post("/chat/{conversation_id}/stream")
async def start_stream(conversation_id: str, request: Request):
    prompt = (await request.json())["prompt"]
    return await start_conversation_stream(
        stream, registry, stop, conversation_id, f"{conversation_id}:1", producer=lambda: call_llm(prompt)
    )


@app.get("/chat/{conversation_id}/stream")
async def resume_stream(conversation_id: str, after: int = 0):
    resumed = await resume_conversation_stream(stream, registry, conversation_id, after=after)
    return Response(status_code=204) if resumed is None else streaming_response(resumed)


@app.post("/chat/{conversation_id}/stop")
async def stop_stream(conversation_id: str):
    return {"stopped": await stop_conversation_stream(registry, stop, conversation_id)}
