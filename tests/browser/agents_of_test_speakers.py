"""A desk that hands over to Ada and takes over again."""

from collections.abc import AsyncIterator

from threadcast import AgentContext, agent

SAID = [("", "Welcome."), ("Ada", "I help."), ("Ada", "Done."), ("", "Goodbye.")]


@agent("desk", title="Desk")
async def desk(ctx: AgentContext) -> None:
    """Answer in four messages."""
    for number, (speaker, text) in enumerate(SAID):

        async def pieces(said: str = text) -> AsyncIterator[str]:
            yield said

        await ctx.seam.message(str(number), pieces, speaker=speaker)
