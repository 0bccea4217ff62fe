"""What several tests begin with, and look at in the end."""

from toypair.engine import Params, Shape, ToyEngine
from toypair.model import answer
from toypair.pair import Pair
from toypair.transport import FABRIC

PROMPT = list(range(10, 31))
MORE = [3, 1, 4, 1, 5]
SMALL = Shape(blocks=24)  # 23 to use, of 4 tokens
OURS: Params = {"disaggpair": {"conversation": "c"}}


def cold(pair: Pair, tokens: int = 12) -> tuple[list[int], Params]:
    """A conversation that D holds, and P does not any more."""
    held, handle = pair.conversation(PROMPT, tokens=tokens)
    pair.settle()
    assert pair.p.scheduler.reset_prefix_cache()
    return held, handle


def parked(pair: Pair, prompt: list[int], params: Params | None, *, role: str = "p") -> str:
    """A leg whose read is under way."""
    engine = getattr(pair, role)
    FABRIC.hold = lambda read: True
    name = engine.add(prompt, params, tokens=1 if role == "p" else 4)
    for _ in range(4):
        engine.step()
    FABRIC.hold = lambda read: False
    assert engine.is_parked(name)
    assert len(FABRIC.waiting()) == 1
    return name  # type: ignore[no-any-return]  # vLLM is not typed here


def turn_alone(engine: ToyEngine, prompt: list[int], tokens: int = 4) -> tuple[list[int], Params]:
    """A turn of D alone: what it holds then, and its lease."""
    name = engine.add(prompt, OURS, tokens=tokens)
    engine.run(name)
    outcome = engine.outcomes[name]
    assert outcome.params is not None
    return [*prompt, *outcome.tokens], outcome.params


def three_leases(pair: Pair) -> list[str]:
    """Leases of 5 blocks each, oldest first, and 8 free blocks."""
    prompts = [[first] * 17 for first in (1, 2, 3)]
    leases = [turn_alone(pair.d, prompt)[1]["disaggpair"]["lease"] for prompt in prompts]
    assert [lease.blocks for lease in pair.d.leases.values()] == [5, 5, 5]
    return leases


def ends_rightly(engine: ToyEngine, name: str, prompt: list[int], tokens: int = 1) -> None:
    """Run a leg to its end, and compare what it says."""
    engine.run(name)
    assert engine.outcomes[name].tokens == answer(prompt, tokens)


def ended(engine: ToyEngine) -> dict[str, int]:
    """Leases of an engine that have ended, by reason."""
    return {reason: count for reason, count in engine.book.counters.ended.items() if count}


def refused(engine: ToyEngine) -> dict[str, int]:
    """Reads that an engine did not make, by reason, as far as it has reported."""
    prefix = "refused_reads|"
    return {
        name.removeprefix(prefix): int(count)
        for name, count in engine.counted.items()
        if name.startswith(prefix)
    }
