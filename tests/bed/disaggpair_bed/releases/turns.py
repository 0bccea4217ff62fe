"""Turns of a P and a D with the schedulers of one release: a program for `released`.

    python -m disaggpair_bed.releases.turns MODEL > results.json

Standard output is an object with what was seen in each scene.
"""

import copy
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Final

from disaggpair_bed.releases.pairs import ANSWER, FIRST, Json, Pair, blocks_read
from disaggpair_bed.releases.stepped import BLOCK_SIZE, SAMPLED

HISTORY: Final = list(range(1000, 1000 + 1000))
"""Tokens of a first prompt: 62 whole blocks and half of one."""


def first_turn(pair: Pair) -> Json:
    """D reads what P computed, and a lease is all that is left of the turn."""
    free = pair.free()
    by_p, by_d, handle = pair.turn(HISTORY)
    assert handle is not None
    return {
        "p read": by_p["blocks"],
        "d read": by_d["blocks"],
        "p freed": pair.prefill.free_blocks == free["p"],
        "d holds": free["d"] - pair.decode.free_blocks,
        "in leases": pair.leases(),
        "d steps on": pair.decode.scheduler.has_requests(),
        "tokens": handle["remote_num_tokens"],
        "timers": len(pair.decode.worker.timed),
    }


def next_turn(pair: Pair) -> Json:
    """P reads what D holds, and D's blocks are free after its notification."""
    free = pair.free()
    _, _, handle = pair.turn(HISTORY)
    pair.prefill.scheduler.reset_prefix_cache()
    prompt = [*HISTORY, *[SAMPLED] * ANSWER, *range(5000, 5100)]
    by_p, by_d, again = pair.turn(prompt, handle)
    assert again is not None
    used, _, _ = pair.turn(prompt, handle)
    return {
        "p read": by_p["blocks"],
        "same order": by_p["remote"] == sorted(by_p["remote"]),
        "d read": by_d["blocks"] < -(-len(prompt) // BLOCK_SIZE),
        "a used handle read": used["blocks"],
        "late": pair.decode.worker.late,
        "tokens": again["remote_num_tokens"],
        "left": _drop(pair, free),
    }


def edited_turn(pair: Pair) -> Json:
    """Of a history that was edited only what came before is read."""
    free = pair.free()
    _, _, handle = pair.turn(HISTORY)
    pair.prefill.scheduler.reset_prefix_cache()
    prompt = [*HISTORY[:600], 1, *HISTORY[601:], *range(5000, 5100)]
    by_p, _, _ = pair.turn(prompt, handle)
    return {"p read": by_p["blocks"], "left": _drop(pair, free)}


def other_turn(pair: Pair) -> Json:
    """Of another conversation's handle nothing is read."""
    free = pair.free()
    _, _, handle = pair.turn(HISTORY)
    pair.prefill.scheduler.reset_prefix_cache()
    by_p, _, _ = pair.turn([token + 50_000 for token in HISTORY], handle)
    return {"p read": by_p["blocks"], "left": _drop(pair, free)}


def wrong_offers(pair: Pair) -> Json:
    """D computes what parameters of other tokens, wrong ones, or used ones name."""
    free = pair.free()
    pair.prefill.add("p", HISTORY, copy.deepcopy(FIRST))
    pair.prefill.run("p")
    offer = pair.prefill.finished["p"]
    ours = offer["disaggpair"]
    read = []
    for number, params in enumerate(
        (
            {**offer, "disaggpair": 3},
            {**offer, "disaggpair": {**ours, "token": "another"}},
            {**offer, "disaggpair": {**ours, "lease": "another"}},
            {**offer, "do_remote_decode": True},
            {key: offer[key] for key in offer if key != "disaggpair"},
            {"do_remote_prefill": True},
            {**offer, "remote_num_tokens": "1000", "remote_request_id": "another"},
            offer,
        )
    ):
        before = len(pair.decode.worker.reads)
        pair.decode.scheduler.reset_prefix_cache()
        pair.decode.add(f"d{number}", HISTORY, copy.deepcopy(params), max_tokens=2)
        pair.decode.run(f"d{number}")
        pair.decode.settle()
        read.append(blocks_read(pair.decode.worker.reads[before:])["blocks"])
    return {"d read": read, "left": _drop(pair, free)}


def other_offer(pair: Pair) -> Json:
    """D reads nothing of what P computed for another prompt, and P frees it."""
    free = pair.free()
    pair.prefill.add("q", HISTORY, copy.deepcopy(FIRST))
    pair.prefill.run("q")
    before = len(pair.decode.worker.reads)
    other = [token + 50_000 for token in HISTORY]
    pair.decode.add("e", other, copy.deepcopy(pair.prefill.finished["q"]), max_tokens=2)
    pair.decode.run("e")
    read = blocks_read(pair.decode.worker.reads[before:])["blocks"]
    return {"d read": read, "left": _drop(pair, free)}


def failed_read(pair: Pair) -> Json:
    """A read that fails is computed, and not promised again."""
    free = pair.free()
    _, _, handle = pair.turn(HISTORY)
    pair.prefill.scheduler.reset_prefix_cache()
    prompt = [*HISTORY, *[SAMPLED] * ANSWER, *range(5000, 5100)]
    pair.prefill.worker.fails = lambda read: True
    by_p, _, again = pair.turn(prompt, handle)
    pair.prefill.worker.fails = lambda read: False
    return {"p read": by_p["blocks"], "answered": again is not None, "left": _drop(pair, free)}


def aborted_turns(pair: Pair) -> Json:
    """A client that leaves while P asks D, or while P reads, leaves nothing behind."""
    free = pair.free()
    returned = []
    for is_read_begun in (False, True):
        _, _, handle = pair.turn(HISTORY)
        pair.prefill.scheduler.reset_prefix_cache()
        prompt = [*HISTORY, *[SAMPLED] * ANSWER, *range(5000, 5100)]
        pair.prefill.worker.reads.clear()
        pair.prefill.add("left", prompt, copy.deepcopy(handle))
        if is_read_begun:
            pair.prefill.step_until(lambda: bool(pair.prefill.worker.reads))
        pair.prefill.abort("left")
        # A D without requests does not step, and so does not hear that P has read.
        pair.decode.add(f"other-{is_read_begun}", [1, 2, 3], None)
        pair.settle()
        pair.decode.step_until(lambda: not pair.reading())
        returned.append(pair.prefill.finished.get("left"))
        pair.forget()
    return {"returned": returned, "late": pair.decode.worker.late, "left": _drop(pair, free)}


def growth(pair: Pair) -> Json:
    """A request that runs grows into the blocks of a lease, and is not preempted."""
    free = pair.free()
    pair.turn(HISTORY)
    pair.decode.add("long", list(range(90_000, 90_500)), None, max_tokens=2000)
    request = pair.decode.scheduler.requests["long"]
    pair.decode.run("long")
    pair.settle()
    return {
        "preemptions": request.num_preemptions,
        "held": pair.leases(),
        "left": _drop(pair, free),
    }


def pressure(pair: Pair) -> Json:
    """Requests that need blocks have those of leases at once, oldest first."""
    free = pair.free()
    _, _, oldest = pair.turn(HISTORY)
    other = [token + 20_000 for token in HISTORY]
    _, _, newest = pair.turn(other)
    held = pair.leases()
    pair.decode.add("alone", [token + 70_000 for token in HISTORY], None, max_tokens=1)
    pair.decode.step()
    at_once = "alone" in pair.decode.finished
    left = pair.leases()
    pair.settle()
    pair.prefill.scheduler.reset_prefix_cache()
    tail = [*[SAMPLED] * ANSWER, *range(5000, 5100)]
    kept, _, _ = pair.turn([*other, *tail], newest)
    lost, _, _ = pair.turn([*HISTORY, *tail], oldest)
    return {
        "held": held,
        "at once": at_once,
        "still held": left,
        "oldest is read": lost["blocks"],
        "newest is read": kept["blocks"],
        "left": _drop(pair, free),
    }


SCENES: Final[tuple[Callable[[Pair], Json], ...]] = (
    first_turn,
    next_turn,
    edited_turn,
    other_turn,
    wrong_offers,
    other_offer,
    failed_read,
    aborted_turns,
    growth,
    pressure,
)


def main() -> None:
    """Play all scenes; what vLLM prints goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    pair = Pair(sys.argv[1])
    results: Json = {}
    for scene in SCENES:
        started = time.perf_counter()
        results[scene.__name__] = scene(pair)
        pair.forget()
        print(f"{scene.__name__}: {time.perf_counter() - started:.2f} s", file=sys.stderr)
    json.dump(results, answers)
    answers.flush()
    os._exit(0)  # vLLM's threads are of no use any more


def _drop(pair: Pair, free: Json) -> Json:
    """Blocks that are missing once caches and leases are empty."""
    pair.settle()
    pair.forget()
    now = pair.free()
    return {name: free[name] - now[name] for name in free if free[name] != now[name]}


if __name__ == "__main__":
    main()
