"""Until nobody would miss an engine's memory."""

import asyncio
import itertools
from typing import Final

from disaggpair_bed.simengine.core import EngineCore

_POLL_S: Final = 0.002


async def drained(core: EngineCore, died: asyncio.Event) -> None:
    """Wait until a core is drained or has died. What is waited for ends in its time."""
    for _ in itertools.count():
        if core.is_drained or died.is_set():
            return
        await asyncio.sleep(_POLL_S)
