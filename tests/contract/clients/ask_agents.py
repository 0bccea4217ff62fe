"""The OpenAI Agents SDK: a loop that calls a tool, then a second question, plain and streamed."""

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

RIVER = "Tell me of the river and of all the towns that lie on it, one after the other. " * 4


def look_up(answer: str) -> str:
    """Looks a town up."""
    return f"a town of {len(answer)} people"


async def ran(agent: Agent[Any], given: Any, stream: bool) -> Any:
    """The result of one question."""
    if not stream:
        return await Runner.run(agent, given)
    result = Runner.run_streamed(agent, given)
    async for _ in result.stream_events():
        pass
    return result


async def loop(model: Any, name: str, stream: bool) -> list[str]:
    agent: Agent[Any] = Agent(
        name="guide", instructions="Be brief.", tools=[function_tool(look_up)], model=model
    )
    first = await ran(agent, f"{name} {RIVER} #call", stream)
    more = {"role": "user", "content": f"And the other bank? {RIVER}"}
    second = await ran(agent, [*first.to_input_list(), more], stream)
    assert len(first.raw_responses) == 2
    return [first.final_output, second.final_output]


async def everything(url: str) -> list[Any]:
    async with AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        models: list[Any] = [
            OpenAIChatCompletionsModel(model="toy", openai_client=client),
            OpenAIResponsesModel(model="toy", openai_client=client),
        ]
        return [
            await loop(model, f"{type(model).__name__} {stream}", stream)
            for model in models
            for stream in (False, True)
        ]


set_tracing_disabled(True)
json.dump([asyncio.run(everything(url)) for url in sys.argv[1:]], sys.stdout)
