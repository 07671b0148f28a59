"""The smallest AgentOS chat: one agent with a database and the durable queue that its documentation recommends.

Database, queue and events are in Redis, so that one store is enough. It runs under uvicorn in the peer's own
environment; our code does not import it.
"""

import os

from agno.agent import Agent
from agno.db.redis import RedisDb
from agno.job_queue import QueueConfig
from agno.models.openai.like import OpenAILike
from agno.os import AgentOS
from agno.tools import tool

db = RedisDb(db_url=os.environ["STORE_URL"])
queue = QueueConfig(
    redis=os.environ["STORE_URL"],
    durable=True,
    max_attempts=2,  # with the default, 1, the run of a dead worker fails
    retry_delay_seconds=1,
    lock_grace_seconds=4,  # the default of 60 is too long for this measurement
    stop_timeout_seconds=3,
)


def model() -> OpenAILike:
    return OpenAILike(id="scripted", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")


@tool(requires_confirmation=True)
def danger(what: str) -> str:
    """Do something dangerous."""
    return f"did {what}"


chat = Agent(id="chat", model=model(), db=db, telemetry=False)
approval = Agent(id="approval", model=model(), db=db, tools=[danger], telemetry=False)
agent_os = AgentOS(agents=[chat, approval], db=db, telemetry=False, queue=queue)
app = agent_os.get_app()
