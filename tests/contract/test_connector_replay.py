"""The own code of every vLLM release that the connector accepts: what it does, and with ours.

Each letter is a way in which transfer parameters are right, wrong or spent. The release of the
CPU engines runs with them; the others are opt-in, since their wheels are fetched:
`pytest -m wheels`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import disaggpair_bed
from disaggpair_bed.cpu import model
from disaggpair_bed.cpu.install import VLLM_RELEASE, Engines
from disaggpair_bed.releases import turns
from disaggpair_bed.releases.released import ReleaseCode, release_scheduler_classes
from disaggpair_connector import compat

pytestmark = pytest.mark.timeout(900, func_only=True)

RELEASES = ("0.31.0", "0.32.0", "0.33.0")
MARKS = {
    release: pytest.mark.engines if release == VLLM_RELEASE else pytest.mark.wheels
    for release in RELEASES
}
REPLAY = Path(disaggpair_bed.__file__).parent / "simengine" / "replay.py"
BLOCK_SIZE = 16
"""As the program has it."""

ON = {"bidirectional_kv_xfer": True}
PEER = {
    "remote_engine_id": "peer",
    "remote_request_id": "chatcmpl-turn-1",
    "remote_host": "10.0.0.7",
    "remote_port": 5600,
    "tp_size": 1,
}


def handle(tokens: int = 1600, **changes: Any) -> dict[str, Any]:
    """What D returned for so many tokens, on a P leg."""
    blocks = list(range(1, 1 + -(-tokens // BLOCK_SIZE)))
    flags = {"do_remote_decode": True, "do_remote_prefill": False}
    held = {"remote_block_ids": [blocks], "remote_num_tokens": tokens}
    return {**flags, **PEER, **held, **changes}


def offer(tokens: int = 960, **changes: Any) -> dict[str, Any]:
    """What P returned for so many tokens, on a D leg."""
    return handle(tokens, **{"do_remote_decode": False, "do_remote_prefill": True, **changes})


def without(params: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key not in keys}


def life(
    params: dict[str, Any] | None, prompt: int = 2000, computed: int = 0, **more: Any
) -> dict[str, Any]:
    case = {"extra": ON, "status": "FINISHED_LENGTH_CAPPED", **more}
    return {"hook": "life", "params": params, "prompt": prompt, "computed": computed, **case}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "A: what P lacks is read": (
        life(handle(), 2000, 320),
        {"matched": [[1280, True]], "reads": [list(range(21, 101))]},
    ),
    "A: from the end of D's list": (
        {"hook": "pairing", "local": list(range(80)), "remote": [list(range(100))]},
        {"remote": list(range(20, 100))},
    ),
    "B: a shorter prompt is read as if it ended where D's tokens end": (
        {"hook": "pairing", "local": list(range(60)), "remote": [list(range(100))]},
        {"remote": list(range(40, 100))},
    ),
    "B and C: tokens are not compared": (life(handle(), 960), {"matched": [[960, True]]}),
    "D: no tokens release D": (
        life(handle(remote_num_tokens=0)),
        {"reads": [], "notifies": ["chatcmpl-turn-1"]},
    ),
    "E: below the threshold D is released": (
        life(handle(340), 2000, 320),
        {"reads": [], "notifies": ["chatcmpl-turn-1"]},
    ),
    "F: no blocks on a D leg end the engine": (
        life(without(offer(), "remote_block_ids"), 960),
        {"crash": "AssertionError"},
    ),
    **{
        f"G: a D leg without {key} is parked for ever": (
            life(without(offer(), key), 960),
            {"matched": [[960, True]], "reads": [], "notifies": []},
        )
        for key in ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")
    },
    "H: a handle without tokens is computed": (
        life(without(handle(), "remote_num_tokens")),
        {"matched": [[0, False]], "reads": [], "notifies": ["chatcmpl-turn-1"]},
    ),
    "I: parameters without flags pin D's blocks for ever": (
        life({"conversation": "c"}, 960, sampled=5),
        {"pinned": True, "tracked": False},
    ),
    "J: an aborted turn leaves nothing": (
        life(offer(), 960, status="FINISHED_ABORTED"),
        {"pinned": False, "returned": None},
    ),
    "K: a repetition leaves nothing": (
        life(offer(), 960, status="FINISHED_REPETITION"),
        {"pinned": False, "returned": None},
    ),
    "L: no parameters leave nothing": (life(None, 960), {"pinned": False, "returned": None}),
    "M: more blocks here than there end the engine": (
        {"hook": "pairing", "local": [1, 2], "remote": [[7]]},
        {"crash": "AssertionError"},
    ),
    "N: a handle cut to its first blocks is read": (
        life(handle(1600, remote_block_ids=[list(range(1, 51))], remote_num_tokens=800)),
        {"matched": [[800, True]], "reads": [list(range(1, 51))]},
    ),
    "O: with the flag off on P it is parked for ever": (
        life(handle(), extra={}),
        {"matched": [[1600, True]], "reads": [], "notifies": []},
    ),
    "P: with a host buffer on P it is parked for ever": (
        life(handle(), host_buffer=True),
        {"matched": [[1600, True]], "reads": [], "notifies": []},
    ),
    "Q: tokens as text end the engine": (
        life(handle(remote_num_tokens="1600")),
        {"crash": "TypeError"},
    ),
    "Q: too many tokens promise the whole prompt": (
        life(handle(remote_num_tokens=10**6)),
        {"matched": [[2000, True]]},
    ),
    "asked again it promises what it does not queue": (
        life(handle(), askings=2),
        {"matched": [[1600, True], [1600, True]], "reads": [list(range(1, 101))]},
    ),
}


def test_every_minor_release_that_the_connector_accepts_is_replayed() -> None:
    (major, lowest), (_, below) = compat.LOWEST, compat.BELOW
    minors = [f"{major}.{minor}" for minor in range(lowest, below)]
    assert [release.rpartition(".")[0] for release in RELEASES] == minors


@pytest.fixture(
    scope="module",
    params=[pytest.param(release, marks=MARKS[release]) for release in RELEASES],
)
def code(request: pytest.FixtureRequest, cpu_engines: Engines) -> ReleaseCode:
    chosen = request.config.getoption("markexpr")
    if MARKS[request.param] is pytest.mark.wheels and "wheels" not in chosen:
        pytest.skip("opt-in: pytest -m wheels")
    return release_scheduler_classes(request.param, cpu_engines, print)


@pytest.fixture(scope="module")
def results(code: ReleaseCode) -> dict[str, dict[str, Any]]:
    given = json.dumps([case for case, _ in CASES.values()])
    found = json.loads(code.run(REPLAY, given=given))
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_vllm_does_what_the_connector_is_for(name: str, results: dict[str, dict[str, Any]]) -> None:
    expected = CASES[name][1]
    assert {key: results[name].get(key) for key in expected} == expected


@pytest.fixture(scope="module")
def seen(code: ReleaseCode, cpu_engines: Engines) -> dict[str, Any]:
    """Turns of a P and a D with our connector, by scene."""
    folder = model.ensure(cpu_engines, print)
    found: dict[str, Any] = json.loads(code.run("-m", turns.__name__, folder))
    return found


TOLD = {
    "first_turn": {
        "p read": 0,
        "d read": 63,
        "p freed": True,
        "d holds": 65,
        "in leases": 65,
        "d steps on": False,
        "tokens": 1040,
        "timers": 0,
    },
    "next_turn": {
        "p read": 65,
        "same order": True,
        "d read": True,
        "a used handle read": 0,
        "late": [],
        "tokens": 1181,
        "left": {},
    },
    "edited_turn": {"p read": 32, "left": {}},
    "other_turn": {"p read": 0, "left": {}},
    "wrong_offers": {"d read": [0, 0, 0, 0, 0, 0, 63, 0], "left": {}},
    "other_offer": {"d read": 0, "left": {}},
    "failed_read": {"p read": 65, "answered": True, "left": {}},
    "aborted_turns": {"returned": [None, None], "late": [], "left": {}},
    "growth": {"preemptions": 0, "held": 0, "left": {}},
    "pressure": {
        "held": 130,
        "at once": True,
        "still held": 65,
        "oldest is read": 0,
        "newest is read": 65,
        "left": {},
    },
}
"""What each scene of `turns` comes to; 1000 tokens of history are 63 blocks, 1040 are 65."""


@pytest.mark.parametrize("scene", TOLD)
def test_the_connector_leases_and_reads_on_the_schedulers_of_the_release(
    scene: str, seen: dict[str, Any]
) -> None:
    assert seen[scene] == TOLD[scene]


def test_every_scene_is_judged() -> None:
    assert [scene.__name__ for scene in turns.SCENES] == list(TOLD)


def test_the_code_is_that_of_the_release(code: ReleaseCode) -> None:
    assert code.run("-c", "import vllm; print(vllm.__version__)").split() == [code.version]
