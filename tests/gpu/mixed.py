"""Several conversations at once: what their clients wait, and how evenly D's streams run."""
# ruff: noqa: T201 - it prints its tables

import asyncio
import dataclasses
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from front import Router
from tables import READ
from talk import Seen, Talk, begin, say
from turns import grown, metrics

HISTORIES: Final = (4_000, 6_000, 8_000, 16_000)
NEW_TOKENS: Final = (64, 128, 256, 512, 1_024, 2_048, 4_096)
WEIGHTS: Final = (3, 4, 5, 5, 4, 2, 1)
"""Agents: many short tool results, some files; as in the simulation of the ways."""
ANSWERS: Final = (16, 32, 64, 128)
_AT_ONCE: Final = 4
_OVERTIME_S: Final = 15.0
"""After the last planned turn; what has not begun then is left out."""
_REFUSED: Final = "disaggpair:refused_reads_total"
_COMPUTED: Final = 'vllm:prompt_tokens_by_source_total|source="local_compute"'
BUDGET_S: Final = 0.1


@dataclass(frozen=True)
class Planned:
    """One turn of a trace."""

    at_s: float
    talk: int
    new: int
    answer: int


def trace(seed: int, *, per_s: float, turns: int, talks: int) -> list[Planned]:
    """Turns at random times, the conversations one after the other."""
    draw = random.Random(seed)
    made, at_s = [], 0.0
    for number in range(turns):
        at_s += draw.expovariate(per_s)
        new = round(draw.choices(NEW_TOKENS, WEIGHTS)[0] * draw.uniform(0.75, 1.3))
        made.append(Planned(at_s, number % talks, min(new, 4_096), draw.choice(ANSWERS)))
    return made


def talks_of(count: int) -> list[Talk]:
    """Conversations of different histories."""
    return [
        Talk(f"mixed-{number}", 100 + number, HISTORIES[number % len(HISTORIES)])
        for number in range(count)
    ]


async def prepare(plain: Router, talks: Sequence[Talk]) -> None:
    """Bring all conversations to their beginning."""
    gate = asyncio.Semaphore(_AT_ONCE)
    async with aiohttp.ClientSession() as client:

        async def one(talk: Talk) -> None:
            async with gate:
                await begin(client, plain.url, talk)

        await asyncio.gather(*map(one, talks))
    await asyncio.sleep(0.3)


async def play(router: Router, talks: Sequence[Talk], plan: Sequence[Planned], way: str) -> Any:
    """One trace; a conversation's turn waits for the end of the one before it."""
    seen: list[Seen] = []
    failed: list[str] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        began = time.perf_counter()
        until = began + plan[-1].at_s + _OVERTIME_S

        async def converse(talk: Talk, mine: Sequence[Planned]) -> None:
            for turn in mine:
                due = began + turn.at_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                now = time.perf_counter()
                if now > until:
                    return
                try:
                    seen.append(
                        await say(
                            client,
                            router.url,
                            talk,
                            turn.new,
                            answer=turn.answer,
                            way=way,
                            late_s=now - due,
                        )
                    )
                except (RuntimeError, aiohttp.ClientError, TimeoutError) as error:
                    failed.append(repr(error))
                    return

        of_talk = ([turn for turn in plan if turn.talk == index] for index in range(len(talks)))
        await asyncio.gather(*(converse(*pair) for pair in zip(talks, of_talk, strict=True)))
        took_s = time.perf_counter() - began
    return seen, failed, took_s


async def measure(
    router: Router,
    plain: Router,
    prefill: str,
    decode: str,
    talks: Sequence[Talk],
    plan: Sequence[Planned],
    way: str,
) -> dict[str, Any]:
    """Figures of one trace by one way, or by the router's choice for an empty one."""
    await prepare(plain, talks)
    before = metrics(prefill), metrics(decode)
    seen, failed, took_s = await play(router, talks, plan, way)
    await asyncio.sleep(0.3)
    after = metrics(prefill), metrics(decode)
    lines = {line["request"]: line for line in router.turns()}
    of_run = [lines[one.request] for one in seen if one.request in lines]
    return {
        "way": way or "chosen",
        "planned": len(plan),
        "took_s": took_s,
        "failed": failed,
        "p_read": grown(before[0], after[0], READ),
        "p_computed": grown(before[0], after[0], _COMPUTED),
        "p_refused": grown(before[0], after[0], _REFUSED),
        "d_computed": grown(before[1], after[1], _COMPUTED),
        "ways": Counter(line["way"] for line in of_run),
        "why": Counter(f"{line['way']} {line.get('why', '')}".strip() for line in of_run),
        "misses": Counter(line["reason"] for line in of_run if "reason" in line),
        "turns": [{**dataclasses.asdict(one), "line": lines.get(one.request, {})} for one in seen],
    }


def report(per_s: float, run: dict[str, Any]) -> None:
    """One line."""
    times = sorted(1e3 * turn["first_token_s"] for turn in run["turns"])
    late = [turn["late_s"] for turn in run["turns"]]
    gaps = sorted(1e3 * gap for turn in run["turns"] for gap in turn["gaps_s"])
    if not times or not gaps:
        print(f"{per_s:g}/s {run['way']}: nothing; {run['failed'][:2]}", flush=True)
        return
    over = sum(gap > 1e3 * BUDGET_S for gap in gaps) / len(gaps)
    print(
        f"{per_s:g}/s {run['way']:6}: TTFT mean {statistics.mean(times):6.0f} "
        f"p50 {at(times, 0.5):6.0f} p90 {at(times, 0.9):6.0f} p99 {at(times, 0.99):6.0f} | gaps "
        f"mean {statistics.mean(gaps):.0f} p50 {at(gaps, 0.5):.0f} p99 {at(gaps, 0.99):.0f} "
        f"max {gaps[-1]:.0f}, {over:.2%} over {1e3 * BUDGET_S:.0f} | {len(times)} of "
        f"{run['planned']} turns in {run['took_s']:.0f} s, late {statistics.mean(late):.2f} s, "
        f"{len(run['failed'])} failed | P read {run['p_read']:.0f} computed "
        f"{run['p_computed']:.0f} refused {run['p_refused']:.0f}, D computed "
        f"{run['d_computed']:.0f} | {dict(run['why'])} {dict(run['misses'])}",
        flush=True,
    )


def at(values: Sequence[float], part: float) -> float:
    """A percentile of sorted values."""
    return values[min(len(values) - 1, int(part * len(values)))]
