"""What happens before a generation request reaches the core: its time, and faults."""

import asyncio

from aiohttp import web

from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.engine import EngineDeadError
from disaggpair_bed.simengine.faults import Fault, Faults
from disaggpair_bed.simengine.ranks import Ranks
from disaggpair_bed.simengine.sse import reset


async def early_answer(
    request: web.Request, ranks: Ranks, faults: Faults
) -> web.StreamResponse | None:
    """What is answered at once; None to go on.

    Raises:
        EngineDeadError: the core died meanwhile.
    """
    if seconds := ranks.options.costs.arrival_s():
        await asyncio.sleep(seconds)
    if fault := faults.take("delay"):
        await asyncio.sleep(fault.delay_s)
    if faults.take("hang"):
        await ranks.died.wait()
        raise EngineDeadError(ranks.death)
    if faults.take("reset"):
        await reset(request)
    if faults.take("crash"):
        ranks.crash("a fault of the test bed")
    fault = faults.take("status")
    return None if fault is None else _status(fault)


def _status(fault: Fault) -> web.Response:
    response = ApiError(fault.status, "a fault of the test bed", "ServiceUnavailable").response()
    if fault.retry_after is not None:
        response.headers["Retry-After"] = str(fault.retry_after)
    return response
