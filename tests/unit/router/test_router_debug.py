"""The debug page: what is held where, without a word of it."""

import socket
from contextlib import ExitStack
from typing import Any

from disaggpair_bed.fakes.upstream import decoding, prefilling, scripted_engine
from disaggpair_bed.leasebench import lease_bench
from disaggpair_bed.routing import Dialogue, Routed, eventually, routed
from disaggpair_router.seen.debug import MAX_ROWS, DebugPage

LONG = "Tell me of the river and of all the towns that lie on it, one after the other. "


def free_port() -> int:
    with ExitStack() as stack:
        free = stack.enter_context(socket.socket())
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def page(front: Routed, conversation: str = "") -> Any:
    debug = front.router.parts.debug
    assert debug is not None
    return debug.page(conversation)


async def test_the_page_is_on_the_metrics_port_only_and_only_if_asked_for() -> None:
    for debug, status in ((False, 404), (True, 200)):
        port = free_port()
        async with (
            scripted_engine(prefilling()) as prefill,
            scripted_engine(decoding()) as decode,
            routed([prefill], [decode], metrics_port=port, debug=debug) as front,
        ):
            url = f"http://127.0.0.1:{port}/debug/conversations"
            async with front.http.get(url) as response:
                assert response.status == status
            assert (await front.get("/debug/conversations")).status == 404
            if debug:
                async with front.http.get(url + "?conversation=none") as response:
                    assert (await response.json())["conversations"] == []


async def test_handles_are_shown_by_digest_and_engine() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding("secret answer")) as decode,
        routed([prefill], [decode], debug=True) as front,
    ):
        await front.chat("secret words", conversation_id="secret-id")
        front.clock.offset += 30
        found = page(front)
        (row,) = found["conversations"]
        assert (row["engine"], row["rank"], row["state"]) == (decode.url, 0, "granted")
        assert row["tokens"] > 0
        assert 30 <= row["age_s"] < 60
        assert found["held"] == 1
        assert "secret" not in str(found)
        assert page(front, row["conversation"])["conversations"]
        assert page(front, "0" * 12)["conversations"] == []


async def test_leases_are_shown_with_the_state_of_their_listener() -> None:
    async with lease_bench() as bench, bench.router(debug=True) as front:
        talk = Dialogue(front, {"conversation_id": "secret-id"})
        await talk.say(LONG)
        await eventually(lambda: front.handles == 1)
        found = page(front)
        (row,) = found["conversations"]
        assert (row["engine"], row["state"]) == (bench.decode.url, "granted")
        assert 0 <= row["age_s"] < 60
        listeners = {one["role"]: one["listeners"] for one in found["engines"]}
        assert listeners == {"prefill": [], "decode": ["followed"]}
        assert front.count("lease_listeners", state="followed") == 1
        assert front.count("leases", state="granted") == 1
        await talk.say(LONG)
        assert front.count("claims_total", purpose="read", result="won") == 1
        assert front.count("claim_seconds_count") == 1
        await bench.decode.stop()
        await eventually(lambda: front.count("lease_listeners", state="silent") == 1)


async def test_engines_and_pauses_show_why_turns_go_elsewhere() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], debug=True) as front,
    ):
        endpoints, held = front.router.parts.endpoints, front.router.parts.held
        d = next(one for one in endpoints if one.role == "decode")
        endpoints.set_stuck(d, stuck=True)
        with endpoints.reserved(d):
            engines = {one["role"]: one for one in page(front)["engines"]}
        assert (engines["decode"]["state"], engines["decode"]["in_flight"]) == ("stuck", 1)
        assert engines["prefill"]["state"] == "ready"
        handles: Any = held
        handles._pauses.begin("p", "d")
        (pause,) = page(front)["pauses"]
        assert (pause["prefill"], pause["decode"]) == ("p", "d")
        assert 0 < pause["left_s"] <= 60
        assert front.count("pauses") == 1


async def test_the_page_is_bounded() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
        routed([prefill], [decode], debug=True) as front,
    ):
        await front.chat("a", conversation_id="c")
        held: Any = front.router.parts.held
        (row,) = held.rows()
        many = DebugPage(
            endpoints=front.router.parts.endpoints, held=_Many(held, row), clock=front.clock
        )
        assert len(many.page()["conversations"]) == MAX_ROWS


class _Many:
    """The same, with more conversations than a page shows."""

    def __init__(self, held: Any, row: Any) -> None:
        self._held, self._row = held, row
        self.count = 5 * MAX_ROWS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)

    def rows(self) -> Any:
        return iter([self._row] * self.count)
