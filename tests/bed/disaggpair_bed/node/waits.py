"""Waiting for whichever comes first."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but no longer; true when it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


async def first_of(*waits: "Coroutine[Any, Any, Any] | asyncio.Task[Any]") -> None:
    """Return when the first is done. Coroutines are cancelled then, tasks go on."""
    own = {asyncio.create_task(wait) for wait in waits if not isinstance(wait, asyncio.Task)}
    tasks = own | {wait for wait in waits if isinstance(wait, asyncio.Task)}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*own)


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they are gone, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def never() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()
