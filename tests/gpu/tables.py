"""Time to first token of each way of a turn alone on the engines, by history and new tokens."""
# ruff: noqa: T201 - it prints its tables

import asyncio
import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
from front import Router
from talk import Talk, begin, say
from turns import grown, metrics

WAYS: Final = ("FULL", "PULL", "DIRECT")
_ANSWER: Final = 8
_SETTLE_S: Final = 0.1
"""For the event of the last lease, and for what ends with the turn before."""
READ: Final = 'vllm:prompt_tokens_by_source_total|source="external_kv_transfer"'


async def table(
    plain: Router,
    router: Router,
    prefill: str,
    *,
    histories: Sequence[int],
    new_tokens: Sequence[int],
    rounds: int,
) -> list[dict[str, Any]]:
    """Rounds of all ways in turn; a row for each turn.

    Args:
        plain: brings conversations to their state.
        router: is measured.
        prefill: URL of P, whose counters say what was read.
        histories: tokens.
        new_tokens: tokens.
        rounds: of each; FULL has three at most, since it repeats well and takes long.
    """
    rows: list[dict[str, Any]] = []
    async with aiohttp.ClientSession() as client:
        warm = Talk("warm", 1, 2_000)
        for number in range(6):
            await begin(client, plain.url, warm)
            await asyncio.sleep(_SETTLE_S)
            await say(
                client,
                router.url,
                warm,
                new_tokens[number % len(new_tokens)],
                answer=_ANSWER,
                way=WAYS[number % len(WAYS)],
            )
        for history in histories:
            talk = Talk(f"table-{history}", history, history)
            await begin(client, plain.url, talk)
            for new in new_tokens:
                for number in range(rounds):
                    for way in WAYS[number // 3 :] if number >= 3 else WAYS:
                        await begin(client, plain.url, talk)
                        await asyncio.sleep(_SETTLE_S)
                        before = metrics(prefill)
                        seen = await say(client, router.url, talk, new, answer=_ANSWER, way=way)
                        await asyncio.sleep(_SETTLE_S)
                        read = grown(before, metrics(prefill), READ)
                        rows.append(
                            {
                                **dataclasses.asdict(seen),
                                "asked": way,
                                "history": history,
                                "read": read,
                            }
                        )
                report(rows, history, new)
    lines = {line["request"]: line for line in router.turns()}
    return [{**row, "line": lines.get(row["request"], {})} for row in rows]


def report(rows: Sequence[dict[str, Any]], history: int, new: int) -> None:
    """Medians of one history and number of new tokens, in ms, and what P read."""
    cells = []
    for way in WAYS:
        mine = [
            row for row in rows if (row["asked"], row["history"], row["new"]) == (way, history, new)
        ]
        times = [1e3 * row["first_token_s"] for row in mine]
        read = statistics.median(row["read"] for row in mine)
        cells.append(
            f"{way} {statistics.median(times):5.0f} ({min(times):.0f} to {max(times):.0f}, "
            f"P read {read:.0f})"
        )
    print(f"history {history} new {new}: {'; '.join(cells)}", flush=True)
