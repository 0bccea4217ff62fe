"""How late the event loop is: everything that a turn waits for comes later by as much.

One timer, set again and again; what it is late by is what other work held up the loop. A block
between two samples is seen by the part that falls on a timer, a long one always.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

EVERY_S: Final = 0.25


async def sample_delay(
    observe: Callable[[float], object],
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Observe delays in seconds for ever; cancel to stop."""
    while True:
        due = clock() + EVERY_S
        await sleep(EVERY_S)
        observe(max(0.0, clock() - due))
