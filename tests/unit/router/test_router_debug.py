"""The debug page: what is held where, without a word of it."""

from typing import Any

import pytest

from disaggpair_bed.fakes.upstream import decoding, prefilling, scripted_engine
from disaggpair_bed.leasebench import lease_bench
from disaggpair_bed.routing import Dialogue, Routed, eventually, routed
from disaggpair_router.listening import loopback
from disaggpair_router.seen.debug import MAX_ROWS, DebugPage

LONG = "Tell me of the river and of all the towns that lie on it, one after the other. "


def page(front: Routed, conversation: str = "") -> Any:
    debug = front.router.parts.debug
    assert debug is not None
    return debug.page(conversation)


async def test_the_page_is_on_a_port_of_its_own_and_only_if_asked_for() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding()) as decode,
    ):
        async with routed([prefill], [decode]) as front:
            assert front.router.debug_port is None
        async with routed([prefill], [decode], debug_port=0) as front:
            url = f"http://127.0.0.1:{front.router.debug_port}/debug/conversations"
            async with front.http.get(url + "?conversation=none") as response:
                assert response.status == 200
                assert (await response.json())["conversations"] == []
            assert (await front.get("/debug/conversations")).status == 404


@pytest.mark.parametrize(
    ("host", "bound"),
    [
        ("", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("10.0.0.4", "127.0.0.1"),
        ("router.example", "127.0.0.1"),
        ("127.1.2.3", "127.1.2.3"),
        ("::1", "::1"),
    ],
)
def test_the_page_never_leaves_the_loopback_interface(host: str, bound: str) -> None:
    assert loopback(host) == bound


async def test_handles_are_shown_by_digest_and_engine() -> None:
    async with (
        scripted_engine(prefilling()) as prefill,
        scripted_engine(decoding("secret answer")) as decode,
        routed([prefill], [decode], debug_port=0) as front,
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
    async with lease_bench() as bench, bench.router(debug_port=0) as front:
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
        routed([prefill], [decode], debug_port=0) as front,
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
        routed([prefill], [decode], debug_port=0) as front,
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
