"""The registry of engines, and the probe that fills it for static URLs."""

from dataclasses import replace

import pytest

from disaggpair_bed.fakes.upstream import prefilling, scripted_engine
from disaggpair_router.endpoints import Endpoints
from disaggpair_router.errors import EngineRefused, EngineTimeout, RouterError
from disaggpair_router.metrics import Metrics
from disaggpair_router.pick import Choice, Endpoint
from disaggpair_router.probe import Probe, static_endpoints
from disaggpair_router.upstream import Engines

P = Endpoint("p", "http://p", "prefill", ready=True)
D = Endpoint("d", "http://d", "decode", ready=True)
D2 = replace(D, name="d2")


class Registry(Endpoints):
    def __init__(self, *, single_engine: bool = True) -> None:
        self.now = 0.0
        self.losses: list[tuple[str, str | None]] = []
        super().__init__(
            revision="",
            single_engine=single_engine,
            metrics=Metrics(),
            clock=lambda: self.now,
        )
        self.on_loss(lambda name, life: self.losses.append((name, life)))


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_a_pair_serves(registry: Registry) -> None:
    registry.replace_all([P, D])
    assert registry.choose() == Choice(P, D)
    assert registry.can_serve


def test_one_engine_serves_only_where_it_may() -> None:
    strict = Registry(single_engine=False)
    strict.replace_all([D])
    assert not strict.can_serve
    assert strict.choose(single=True) == Choice(None, D)


def test_a_suspect_is_left_alone_for_its_time(registry: Registry) -> None:
    registry.replace_all([P, D])
    registry.suspect(P, 2.0)
    assert registry.choose() == Choice(None, D)
    registry.now = 2.0
    assert registry.choose() == Choice(P, D)


def test_a_suspicion_ends_with_the_endpoint(registry: Registry) -> None:
    registry.replace_all([P, D])
    registry.suspect(P, 60.0)
    registry.remove(P.name)
    registry.put(P)
    assert registry.choose() == Choice(P, D)


def test_another_incarnation_is_a_loss(registry: Registry) -> None:
    registry.replace_all([P, D])
    registry.put(replace(D, ready=False))
    assert registry.losses == []
    registry.put(replace(D, incarnation="2"))
    registry.remove("absent")
    registry.replace_all([P])
    assert registry.losses == [("d", "2"), ("d", None)]


def test_legs_in_flight_make_an_engine_busier(registry: Registry) -> None:
    registry.replace_all([P, D, D2])
    with registry.leg(D), registry.leg(D):
        assert registry.choose() == Choice(P, D2)
    assert registry.choose() == Choice(P, D)


def test_a_decode_engine_that_went_away_is_replaced(registry: Registry) -> None:
    registry.replace_all([P, D, D2])
    assert registry.still_or_other(P, D) == D
    registry.put(replace(D, ready=False))
    assert registry.still_or_other(P, D) == D2
    registry.remove("d2")
    assert registry.still_or_other(P, D) == D


def test_a_reader_can_reach_the_decode_engine(registry: Registry) -> None:
    registry.replace_all([replace(P, zone="a"), D])
    assert registry.reader_of(replace(D, zone="b")) is None
    assert registry.reader_of(D) == replace(P, zone="a")


async def test_an_engine_is_ready_once_it_answers_and_unready_after_misses(
    registry: Registry,
) -> None:
    async with scripted_engine(prefilling()) as engine, Engines(connect_s=1) as engines:
        static = static_endpoints([engine.url + "/"], ["http://127.0.0.1:9"])
        probe = Probe(static, engines=engines, endpoints=registry, every_s=1)
        assert [one.ready for one in registry] == [False, False]
        await probe.check()
        assert {one.role: one.ready for one in registry} == {"prefill": True, "decode": False}
        engine.healthy = False
        for ready in (True, True, False):
            await probe.check()
            found = registry.get(engine.url)
            assert found is not None
            assert found.ready is ready
        engine.healthy = True
        await probe.check()
        assert registry.choose() == Choice(None, registry.get(engine.url))  # type: ignore[arg-type]  # a stand-in
        assert registry.losses == []


async def test_each_change_of_an_engines_state_is_one_line_with_its_reason(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "disaggpair_router.readiness")
    async with Engines(connect_s=1) as engines:
        async with scripted_engine(prefilling()) as engine:
            static = static_endpoints([engine.url], ["http://127.0.0.1:9"])
            probe = Probe(static, engines=engines, endpoints=registry, every_s=1)
            for healthy in (True, True, False, False, False, False, True):
                engine.healthy = healthy
                await probe.check()
        await probe.check()
        await probe.check()
    p, d = f"the prefill engine {engine.url}", "the decode engine http://127.0.0.1:9"
    assert sorted(one.getMessage() for one in caplog.records) == sorted(
        [
            f"{d} is not ready: no connection can be made",
            f"{p} is ready",
            f"{p} is not ready: GET /health was answered with 503",
            f"{p} is ready",
            f"{p} is not ready: no connection can be made",
        ]
    )


async def test_a_server_that_is_no_engine_is_named_with_what_it_answers(
    registry: Registry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[RouterError] = [EngineRefused(404, "x"), EngineTimeout("It was late.")]
    for error in errors:
        async with Engines(connect_s=1) as engines:

            async def get(*_: object, error: RouterError = error) -> bytes:
                raise error

            monkeypatch.setattr(engines, "get", get)
            probe = Probe(
                static_endpoints(["http://p"], []), engines=engines, endpoints=registry, every_s=1
            )
            for _ in range(4):
                await probe.check()
    assert [one.getMessage() for one in caplog.records] == [
        "the prefill engine http://p is not ready: GET /health was answered with 404",
        "the prefill engine http://p is not ready: GET /health: It was late",
    ]


async def test_h29_a_refused_connection_ends_an_engines_life(registry: Registry) -> None:
    async with Engines(connect_s=1) as engines:
        async with scripted_engine(prefilling()) as engine:
            static = static_endpoints([engine.url], [])
            probe = Probe(static, engines=engines, endpoints=registry, every_s=1)
            await probe.check()
        await probe.check()
        await probe.check()
        assert registry.losses == [(engine.url, "1")]
        registry.replace_all([])
        await probe.check()
        assert list(registry) == []
