"""The simulated engine decides as vLLM 0.32's own classes do, case by case.

vLLM's pull connector runs in a child process with the CPU engines' interpreter; see
`disaggpair_bed.simengine.replay`.
"""

import copy
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from disaggpair_bed.cpu import install
from disaggpair_bed.simengine import apirequest, decisions, replay
from disaggpair_bed.simengine.apierrors import ApiError
from disaggpair_bed.simengine.connector import PullConnector
from disaggpair_bed.simengine.decisions import Ending, EngineCrash
from disaggpair_bed.simengine.handle import HandleMaker
from disaggpair_bed.simengine.job import Request, Sampling
from disaggpair_bed.simengine.leases import LeaseTable
from disaggpair_bed.simengine.options import EngineOptions
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pool import BlockPool
from disaggpair_bed.simengine.release import Release
from disaggpair_bed.simengine.replayer import replayed
from disaggpair_bed.simengine.stats import Stats
from disaggpair_bed.simengine.transferconfig import ConfigError, TransferConfig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

RELEASE = Release.parse(install.VLLM_RELEASE)
BLOCK_SIZE = replay.BLOCK_SIZE
ON = {"bidirectional_kv_xfer": True}
OFF: dict[str, Any] = {}

STATUS = {
    Ending.STOPPED: "FINISHED_STOPPED",
    Ending.LENGTH: "FINISHED_LENGTH_CAPPED",
    Ending.ABORTED: "FINISHED_ABORTED",
    Ending.REPETITION: "FINISHED_REPETITION",
    Ending.ERROR: "FINISHED_ERROR",
}

TURN_1 = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


def decode_handle(tokens: int = 1600, **changes: Any) -> dict[str, Any]:
    """What D returns for so many tokens."""
    handle = {
        "do_remote_prefill": False,
        "do_remote_decode": True,
        "remote_block_ids": [list(range(1, 1 + -(-tokens // BLOCK_SIZE)))],
        "remote_engine_id": "D",
        "remote_request_id": "chatcmpl-turn-1",
        "remote_host": "10.0.0.7",
        "remote_port": 5600,
        "tp_size": 1,
        "remote_num_tokens": tokens,
        "remote_blocks_expiry_time": 1234.5,
    }
    return {**handle, **changes}


def prefill_params(tokens: int = 960, **changes: Any) -> dict[str, Any]:
    """What P returns for so many tokens."""
    flags = {"do_remote_prefill": True, "do_remote_decode": False}
    return decode_handle(tokens, **flags, **{"remote_blocks_expiry_time": None, **changes})


def without(params: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key not in keys}


def life(
    params: dict[str, Any] | None, prompt: int = 2000, computed: int = 0, **settings: Any
) -> dict[str, Any]:
    case = {"extra": ON, "ending": Ending.LENGTH, **settings}
    return {"hook": "life", "params": params, "prompt": prompt, "computed": computed, **case}


NOT_SCHEDULED: dict[str, Any] = {"scheduled": False, "ending": Ending.ABORTED}

LIVES = {
    "turn 1 on P": life(TURN_1),
    "turn 1 on P, flag off": life(TURN_1, extra=OFF),
    "turn 1 on P, stopped by its first token": life(TURN_1, ending=Ending.STOPPED),
    "turn 1 on P, aborted": life(TURN_1, ending=Ending.ABORTED),
    "turn 1 on P, shorter lease": life(TURN_1, extra={**ON, "kv_lease_duration": 7}),
    "turn 1 on D": life(prefill_params(), 960, sampled=40),
    "turn 1 on D, stopped": life(prefill_params(), 960, sampled=40, ending=Ending.STOPPED),
    "turn 1 on D, part of it cached": life(prefill_params(), 960, 320, sampled=7),
    "turn 1 on D, flag off": life(prefill_params(), 960, extra=OFF, sampled=40),
    "turn 1 on D, shorter TTL": life(
        prefill_params(), 960, extra={**ON, "decoder_kv_blocks_ttl": 60}, sampled=3
    ),
    "turn 1 on D, P did not say its layout": life(without(prefill_params(), "tp_size"), 960),
    "read of 64 tokens": life(decode_handle(384), 2000, 320),
    "read of 63 tokens is below the threshold": life(decode_handle(383), 2000, 320),
    "read of 63 tokens with the threshold off": life(
        decode_handle(383), 2000, 320, extra={**ON, "kv_recompute_threshold": 0}
    ),
    "everything is cached on P": life(decode_handle(1600), 2000, 1600),
    "handle without an expiry": life(without(decode_handle(), "remote_blocks_expiry_time")),
    "handle without a layout": life(without(decode_handle(), "tp_size")),
    "handle without do_remote_decode": life(without(decode_handle(), "do_remote_decode")),
    "handle without blocks": life(without(decode_handle(), "remote_block_ids")),
    "handle without engine": life(without(decode_handle(), "remote_engine_id")),
    "handle without request": life(without(decode_handle(), "remote_request_id")),
    "handle without host": life(without(decode_handle(), "remote_host")),
    "handle without port": life(without(decode_handle(), "remote_port")),
    "A: part is cached on P": life(decode_handle(1600), 2000, 320),
    "B: prompt shorter than the handle": life(decode_handle(1600), 960),
    "D: no tokens, the release": life(decode_handle(1600, remote_num_tokens=0)),
    "E: below the threshold": life(decode_handle(340), 2000, 320),
    "F: D leg without blocks": life(without(prefill_params(), "remote_block_ids"), 960),
    "G: D leg without engine": life(without(prefill_params(), "remote_engine_id"), 960),
    "G: D leg without request": life(without(prefill_params(), "remote_request_id"), 960),
    "G: D leg without host": life(without(prefill_params(), "remote_host"), 960),
    "G: D leg without port": life(without(prefill_params(), "remote_port"), 960),
    "H: handle without tokens": life(without(decode_handle(), "remote_num_tokens")),
    "I: params without flags": life({"conversation": "c"}, 960, sampled=5),
    "J: aborted on D": life(prefill_params(), 960, sampled=5, ending=Ending.ABORTED),
    "K: repetition on D": life(prefill_params(), 960, sampled=5, ending=Ending.REPETITION),
    "error on D": life(prefill_params(), 960, ending=Ending.ERROR),
    "L: no params": life(None, 960, sampled=5),
    "L: empty params": life({}, 960, sampled=5),
    "N: handle cut to its first blocks": life(
        decode_handle(1600, remote_block_ids=[list(range(1, 51))], remote_num_tokens=800)
    ),
    "O: flag off on P": life(decode_handle(1600), extra=OFF),
    "P: host buffer on P": life(decode_handle(1600), host_buffer=True),
    "Q: tokens as text": life(decode_handle(1600, remote_num_tokens="1600")),
    "Q: far too many tokens": life(decode_handle(1600, remote_num_tokens=10**6)),
    "asked again after a failed load on P": life(decode_handle(1600), askings=2),
    "asked again after a failed load on D": life(prefill_params(), 960, askings=2),
    "refused before D schedules it": life(prefill_params(), 960, **NOT_SCHEDULED),
    "refused before P schedules it": life(decode_handle(), **NOT_SCHEDULED),
    "refused without engine": life(
        without(prefill_params(), "remote_engine_id"), 960, **NOT_SCHEDULED
    ),
}

PAIRINGS: dict[str, dict[str, Any]] = {
    "same length": {"local": [1, 2, 3], "remote": [[7, 8, 9]]},
    "A: the last 80 of 100": {"local": list(range(80)), "remote": [list(range(100))]},
    "B: the last 60 of 100": {"local": list(range(60)), "remote": [list(range(100))]},
    "M: more here than there": {"local": [1, 2], "remote": [[7]]},
}

EXPIRIES: dict[str, dict[str, Any]] = {
    f"{left} s left, clock offset {offset}": {"left": left, "offset": offset}
    for left in (None, -10, 4, 10, 480)
    for offset in (0.0, 5000.0, -5000.0)
}

LEASES: dict[str, list[tuple[str, str, float]]] = {
    "read in time": [("track", "a", 0), ("pin", "a", 1), ("notify", "a", 2)],
    "read twice": [("track", "a", 0), ("pin", "a", 1), ("notify", "a", 2), ("notify", "a", 3)],
    "runs out": [("track", "a", 0), ("pin", "a", 1), ("tick", "", 30.5), ("tick", "", 31)],
    "read too late": [("track", "a", 0), ("pin", "a", 1), ("tick", "", 32), ("notify", "a", 33)],
    "renewed": [
        ("track", "a", 0),
        ("pin", "a", 1),
        ("heartbeat", "a", 20),
        ("tick", "", 39.5),
        ("tick", "", 40),
    ],
    "a heartbeat never shortens": [
        ("track", "a", 0),
        ("pin", "a", 1),
        ("heartbeat", "a", 2),
        ("tick", "", 30),
        ("tick", "", 31),
    ],
    "never heard of": [("pin", "a", 1), ("tick", "", 100), ("notify", "a", 101)],
    "a long lease does not hold up a short one": [
        ("track", "a", 0),
        ("track", "b", 0),
        ("pin", "a", 1),
        ("pin", "b", 2),
        ("heartbeat", "a", 25),
        ("tick", "", 33),
    ],
}

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "nothing": {},
    "no role": {"kv_connector": "NixlConnector"},
    "misspelt": {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_rol": "x"},
    "bad role": {"kv_connector": "NixlConnector", "kv_role": "producer"},
    "bad policy": {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "retry",
    },
    "unknown extra key": {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {"remote_pull_threshold": 1},
    },
    **{
        f"removed {key}": {"kv_connector": "NixlConnector", "kv_role": "kv_both", key: value}
        for key, value in (
            ("kv_rank", 0),
            ("kv_parallel_size", 1),
            ("kv_buffer_size", 1e9),
            ("kv_ip", "127.0.0.1"),
        )
    },
    **{
        f"known {key}": {"kv_connector": "NixlConnector", "kv_role": "kv_both", key: value}
        for key, value in (
            ("engine_id", "e"),
            ("kv_buffer_device", "cpu"),
            ("kv_port", 1),
            ("kv_load_failure_policy", "recompute"),
            ("enable_permute_local_kv", True),
        )
    },
}

BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one token": {"max_tokens": 1},
    "both limits": {"max_tokens": 1, "max_completion_tokens": 5, "min_tokens": 5},
    "minimum above the maximum": {"max_tokens": 1, "min_tokens": 2},
    "minimum above the other maximum": {"max_completion_tokens": 1, "min_tokens": 2},
    "stream options without stream": {"stream_options": {"include_usage": True}},
    "stream options with stream": {"stream": True, "stream_options": {"include_usage": True}},
    "no tokens": {"max_tokens": 0, "max_completion_tokens": 0},
    "two answers": {"n": 2},
    "two greedy answers": {"n": 2, "temperature": 0},
    "no answer": {"n": 0},
    "unknown field": {"conversation_id": "c"},
    "params as a list": {"kv_transfer_params": []},
    "params as text": {"kv_transfer_params": "x"},
    "no params": {"kv_transfer_params": None},
    "negative minimum": {"min_tokens": -1},
    "limit as a word": {"max_tokens": "many"},
}


def _cases() -> dict[str, dict[str, Any]]:
    """Every case by a name that is unique over all hooks."""
    message = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
    return {
        **{f"life {name}": case for name, case in LIVES.items()},
        **{f"pairing {name}": {"hook": "pairing", **case} for name, case in PAIRINGS.items()},
        **{f"expiry {name}": {"hook": "expiry", **case} for name, case in EXPIRIES.items()},
        **{
            f"leases {name}": {"hook": "leases", "lease": 30, "events": events}
            for name, events in LEASES.items()
        },
        **{f"config {name}": {"hook": "config", "config": case} for name, case in CONFIGS.items()},
        **{
            f"body {name}": {"hook": "body", "body": {**message, **case}}
            for name, case in BODIES.items()
        },
    }


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, Any]]:
    """vLLM's results by the cases' names."""
    cases = _cases()
    wire = []
    for case in cases.values():
        sent = dict(case)
        if "ending" in sent:
            sent["status"] = STATUS[sent.pop("ending")]
        wire.append(sent)
    return dict(zip(cases, replayed(replay, wire), strict=True))


class _Simulated:
    """One request in a simulated connector, with vLLM's view of it as JSON values."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        parsed = TransferConfig.parse(
            {
                "kv_connector": "NixlConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": case["extra"],
                "kv_buffer_device": "cpu" if case.get("host_buffer") else "cuda",
            },
            RELEASE,
        )
        assert parsed is not None
        self.case = case
        self.connector = PullConnector(
            parsed.settings,
            BlockPool(4, BLOCK_SIZE),
            HandleMaker(RELEASE, "engine", "localhost", 5600),
            Stats(),
            Oracle(),
        )
        self.request = Request(
            id="request",
            prompt_tokens=case["prompt"],
            tokens=array("Q", range(case["prompt"])),
            sampling=Sampling(max_tokens=1),
            params=copy.deepcopy(case["params"]),
        )

    def result(self) -> dict[str, Any]:
        case, request, connector = self.case, self.request, self.connector
        connector.arrived(request)
        result: dict[str, Any] = {"heartbeat": connector.heartbeats.next_deadline() is not None}
        scheduled = case.get("scheduled", True)
        try:
            if scheduled:
                result["matched"] = [self._asked() for _ in range(case.get("askings", 1))]
            request.computed = case["prompt"] + case.get("sampled", 1) - 1
            held = -(-request.computed // BLOCK_SIZE)
            request.blocks = list(range(1, held + 1)) if scheduled else []
            pinned, params = connector.finished(request, case["ending"], now=0.0)
        except EngineCrash:
            return {"crash": True}
        reads, notifies = connector.take_jobs()
        result["reads"] = [list(job.local_blocks) for job in reads]
        result["notifies"] = [job.remote_request_id for job in notifies]
        lease = connector.leases.get("request")
        result["deadline"] = lease.deadline if lease else None
        result["pinned"] = pinned
        # P's cache hits are added by the scheduler outside of the connector.
        result["returned"] = without(params, "remote_prefill_cached_tokens") if params else None
        return result

    def _asked(self) -> list[Any]:
        request, computed = self.request, self.case["computed"]
        request.computed = request.local_hit = computed
        count = self.connector.matched_tokens(request)
        assert count is not None
        total = -(-(computed + count if computed + count else request.prompt_tokens) // BLOCK_SIZE)
        request.blocks = list(range(1, total + 1))
        self.connector.allocated(request, count)
        return [count, count > 0]


def _comparable(result: dict[str, Any]) -> dict[str, Any]:
    """vLLM's result with the two halves' knowledge of a deadline joined."""
    if "crash" in result:
        return {"crash": True}
    joined = without(result, "tracked", "ttl")
    pinned_with_deadline = result["pinned"] and result["tracked"]
    joined["deadline"] = result["ttl"][0] if pinned_with_deadline else None
    returned = joined["returned"]
    if returned and returned["remote_blocks_expiry_time"] is not None:
        returned["remote_blocks_expiry_time"] = round(returned["remote_blocks_expiry_time"])
    return joined


@pytest.mark.parametrize("name", LIVES)
def test_a_request_lives_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    assert _Simulated(LIVES[name]).result() == _comparable(real[f"life {name}"])


def test_the_handle_has_the_keys_of_vllm(real: dict[str, Any]) -> None:
    for name in ("turn 1 on P", "turn 1 on D"):
        assert set(RELEASE.handle_keys) == set(real[f"life {name}"]["returned"])


@pytest.mark.parametrize("name", PAIRINGS)
def test_blocks_are_paired_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    case = PAIRINGS[name]
    expected = real[f"pairing {name}"]
    if "crash" in expected:
        with pytest.raises(EngineCrash):
            decisions.paired_blocks(case["local"], case["remote"])
    else:
        assert decisions.paired_blocks(case["local"], case["remote"]) == expected["remote"]


@pytest.mark.parametrize("name", EXPIRIES)
def test_a_read_is_declined_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    left, offset = EXPIRIES[name]["left"], EXPIRIES[name]["offset"]
    expiry = None if left is None else 1000.0 + offset + left
    declined = decisions.is_expired(expiry, offset, now=1000.0)
    assert declined is real[f"expiry {name}"]["declined"]


@pytest.mark.parametrize("name", LEASES)
def test_a_lease_ends_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    table, freed, late, expired = LeaseTable(), [], 0, 0
    for kind, request_id, at in LEASES[name]:
        done: list[str] = []
        if kind == "track":
            table.track(request_id)
        elif kind == "pin":
            table.pin(request_id, "decode", [1], at + 30)
        elif kind == "heartbeat":
            table.extend([request_id], at + 20)
        elif kind == "notify":
            known, lease = table.notify(request_id)
            late += not known
            done += [lease.request_id] if lease else []
        due = [lease.request_id for lease in table.expire(at)]
        expired += len(due)
        freed.append(sorted(done + due))
    assert {"freed": freed, "late": late, "expired": expired} == real[f"leases {name}"]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_refused_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    expected = real[f"config {name}"]
    fault = _fault(TransferConfig.parse, CONFIGS[name], RELEASE)
    assert (fault is None) == expected["accepted"]
    wrong = [key for key in expected.get("names", ()) if key not in ("kv_connector", "kv_role")]
    assert all(key in str(fault) for key in wrong)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_refused_as_in_vllm(name: str, real: dict[str, Any]) -> None:
    body = {"model": "toy", "messages": [{"role": "user", "content": "hello"}], **BODIES[name]}
    fault = _fault(partial(apirequest.parse, chat=True, options=EngineOptions()), body)
    assert (fault is None) == real[f"body {name}"]["accepted"]
    assert fault is None or getattr(fault, "status", None) == 400


def _fault(action: Callable[..., object], *arguments: object) -> Exception | None:
    """How an action was refused; None when it was not."""
    try:
        action(*arguments)
    except (ConfigError, ApiError) as fault:
        return fault
    return None
