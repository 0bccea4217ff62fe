"""How long work takes in a simulated engine, against what was measured on real ones."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from disaggpair_bed.leaseview import LeaseView
from disaggpair_bed.simengine import running_engine
from disaggpair_bed.simengine.commandline import parse_command_line
from disaggpair_bed.simengine.costs import MEASURED, Costs
from disaggpair_bed.simengine.localnet import LocalNet
from disaggpair_bed.simengine.localpair import words
from disaggpair_bed.simengine.twolegs import Client

H200 = MEASURED["h200-32b"]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield Client(session)


def prefill_s(history: int, new: int, costs: Costs = H200) -> float:
    """Time to compute so many tokens after a history, in one step."""
    return costs.step_s(new, 0, new * history + new * (new - 1) // 2)


def off_s(history: int, new: int) -> float:
    """P computes all, D reads it."""
    prompt = history + new
    return 2 * H200.request_s + prefill_s(0, prompt) + H200.transfer_s(0, 0, prompt) + H200.token_s


def on_s(history: int, new: int) -> float:
    """P reads the history and computes the rest, D reads it."""
    moved = H200.transfer_s(0, 0, history) + H200.transfer_s(0, 0, history + new)
    return 2 * H200.request_s + prefill_s(history, new) + moved + H200.token_s


def direct_s(history: int, new: int) -> float:
    """D computes what is new."""
    return H200.request_s + prefill_s(history, new) + H200.token_s


@pytest.mark.parametrize(
    ("history", "new", "off", "on", "direct"),
    [
        (24_000, 256, 3.484, 0.323, 0.122),
        (24_000, 1_024, 3.642, 0.454, 0.236),
        (24_000, 2_048, 3.778, 0.600, 0.423),
        (24_000, 4_096, 4.196, 1.004, 0.765),
        (8_000, 1_024, 1.176, 0.329, 0.157),
        (8_000, 4_096, 1.566, 0.704, 0.553),
    ],
)
def test_the_three_ways_take_about_as_long_as_on_a_gpu(
    history: int, new: int, off: float, on: float, direct: float
) -> None:
    assert off_s(history, new) == pytest.approx(off, rel=0.2)
    assert on_s(history, new) == pytest.approx(on, rel=0.3)
    assert direct_s(history, new) == pytest.approx(direct, rel=0.55)
    assert direct_s(history, new) < on_s(history, new) < off_s(history, new)


def test_nothing_takes_time_by_default() -> None:
    costs = parse_command_line(["m"], {}).costs
    assert costs == Costs()
    assert costs.step_s(8192, 8, 10**9) == costs.transfer_s(10, 10**9, 10**6) == 0
    assert costs.arrival_s() == 0


def test_a_set_of_costs_is_scaled_and_changed() -> None:
    flags = ["--sim-costs", "h200-32b", "--time-scale", "0.1", "--sim-token-s=0.04"]
    costs = parse_command_line(["m", *flags], {"SIM_REQUEST_S": "0.5"}).costs
    assert costs.prefill_tokens_per_s == H200.prefill_tokens_per_s
    assert costs.step_s(0, 4) == pytest.approx(0.004)
    assert costs.arrival_s() == pytest.approx(0.05)
    assert costs.step_s(840, 0) == pytest.approx(0.1 * H200.step_s(840, 0))


def test_a_prefill_in_a_step_makes_it_longer_for_those_that_decode() -> None:
    assert H200.step_s(512, 4, 512 * 8_000) == pytest.approx(0.112, rel=0.15)
    assert H200.step_s(0, 4) == 0.031


def test_positions_are_counted_over_the_steps_of_a_prompt() -> None:
    net = LocalNet()
    attended = []
    for limit in (8192, 128):
        core = net.engine(f"limit {limit}", max_batched_tokens=limit)
        net.submit(core, words(1000), max_tokens=1)
        steps = [core.step(net.now) for _ in range(8)]
        assert sum(step.prefill_tokens for step in steps) == 1000
        attended.append(sum(step.attended for step in steps))
    assert attended == [1000 * 999 // 2] * 2


async def test_the_ways_of_a_turn_differ_as_the_costs_say(client: Client) -> None:
    flags = ("--sim-costs", "h200-32b", "--time-scale", "0.001", "--block-size", "128")
    ours: dict[str, Any] = {"connector": "DisaggPair", "lease_key": "k"}
    async with (
        running_engine("prefill", "--no-enable-prefix-caching", *flags, **ours) as prefill,
        running_engine("decode", *flags, **ours) as decode,
    ):

        def taken_s() -> float:
            """What the costs of both were since the last call."""
            stats = [engine.engine.core.stats for engine in (prefill, decode)]
            seconds = 1000 * sum(one.simulated_s for one in stats)
            for one in stats:
                one.simulated_s = 0.0
            return seconds

        said = {"role": "user", "content": "rivers and hills " * 2000}
        body: dict[str, Any] = {"messages": [said], "max_tokens": 1}
        first = await client.turn(prefill.url, decode.url, body)
        off = taken_s()
        assert first.params is not None
        body["messages"] += [{"role": "assistant", "content": first.text}, said | {"content": "?"}]
        second = await client.turn(prefill.url, decode.url, body, first.params)
        on = taken_s()
        leases = LeaseView(client.session, decode.lease_urls[0], "k")
        (lease,) = (await leases.listing())["leases"]
        params = await leases.claim(lease["id"], "direct")
        third = await client.post(decode.url, {**body, "kv_transfer_params": params})
        direct = taken_s()
    assert second.text == third.text
    assert off == pytest.approx(prefill_s(0, 8507) + H200.transfer_s(0, 0, 8507), rel=0.05)
    assert direct < on < off / 5
