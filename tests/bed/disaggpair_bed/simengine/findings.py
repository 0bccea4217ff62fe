"""What must not be found in an engine at the end of a test, whatever the test was about."""

from disaggpair_bed.simengine.core import EngineCore


def unowned_blocks(core: EngineCore) -> int:
    """Blocks in use that belong to no request and are kept for no peer."""
    owned = {block for request in core.queues.all for block in request.blocks}
    owned |= core.connector.kept_blocks()
    return core.pool.used_blocks - len(owned)


def findings(core: EngineCore, now: float, *, alive: bool = True) -> list[str]:
    """Sentences on unsafe reads, blocks that were lost and requests that will never end.

    Args:
        core: of an engine whose oracle records.
        now: the clock of the core.
        alive: the core is stepping; a dead one has to answer for its reads only.
    """
    found = [
        f"{item.kind} by {item.request_id} {item.detail}".rstrip()
        for item in core.oracle.violations
    ]
    if not alive:
        return found
    core.connector.settle()
    found += [f"kept beyond its time: {name}" for name in core.connector.overdue(now)]
    found += [f"parked for ever: {name}" for name in core.queues.stuck]
    if count := unowned_blocks(core):
        found.append(f"{count} blocks belong to nobody")
    return found
