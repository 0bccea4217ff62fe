"""Bodies and events of any route as they are, for tests of shapes."""

from typing import Any

import aiohttp
import orjson

Json = dict[str, Any]


async def post(
    session: aiohttp.ClientSession, url: str, body: object, **headers: str
) -> tuple[int, Json]:
    """Status and body of an answer."""
    async with session.post(url, json=body, headers=headers) as response:
        return response.status, orjson.loads(await response.read())


async def events(session: aiohttp.ClientSession, url: str, body: Json) -> list[tuple[str, Json]]:
    """Names and data of a stream's events, each of which has a name."""
    async with session.post(url, json={**body, "stream": True}) as response:
        response.raise_for_status()
        raw = await response.read()
    found = []
    for part in raw.decode().strip().split("\n\n"):
        name, data = part.split("\n")
        found.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
    return found


def user(text: str) -> Json:
    """A message of the user."""
    return {"role": "user", "content": text}


async def chat_text(session: aiohttp.ClientSession, url: str, *messages: Json) -> str:
    """What the chat says."""
    _, answer = await post(session, url + "/v1/chat/completions", {"messages": list(messages)})
    text: str = answer["choices"][0]["message"]["content"]
    return text
