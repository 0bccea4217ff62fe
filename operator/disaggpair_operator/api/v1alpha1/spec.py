"""What the user wants: all parts of it, and the rules between them. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from disaggpair_connector.contract import EXPIRY_MARGIN_S
from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.v1alpha1.bounds import MAX_CONVERSATIONS, MAX_HANDLE_BYTES
from disaggpair_operator.api.v1alpha1.engine import API_KEY_VARIABLE, Engine, Model
from disaggpair_operator.api.v1alpha1.placement import Fabric, Placement
from disaggpair_operator.api.v1alpha1.roles import Decode, Prefill
from disaggpair_operator.api.v1alpha1.router import HANDLE_TTL_S, Router
from disaggpair_operator.api.v1alpha1.transfer import DECODE_TTL_S, KVTransfer

QUEUE_MARGIN_S = 30
"""Seconds a turn may wait at P between the router's look-up and the read."""


_HANDLE_TTL = given("self.router.handleTTLSeconds", HANDLE_TTL_S)
_DECODE_TTL = given("self.kvTransfer.decodeTTLSeconds", DECODE_TTL_S)
_REPLICAS = given("self.router.replicas", 1)
_CONNECTOR = given("self.engine.connector", "DisaggPair")
_LIMITS = "self.router.limits"
_WORKERS = given("self.router.workers", 1)
_DIRECT = "has(self.kvTransfer) && has(self.kvTransfer.directTurns)"
_BIDIRECTIONAL = given("self.kvTransfer.bidirectional", True)
_STEP_FLAGS = ("--max-num-batched-tokens", "--max_num_batched_tokens")
_TTL_REASON = f"a turn may wait at P, and P declines a handle in its last {EXPIRY_MARGIN_S} seconds"


_KEY_FLAGS = ("--api-key", "--api_key")
_PARTS_OF_ENGINES = ("engine", "prefill", "decode")


def _sets_api_key(name: str) -> str:
    env = f"self.{name}.env"
    variable = f"has({env}) && {env}.exists(e, e.name == '{API_KEY_VARIABLE}')"
    return f"(has(self.{name}) && {variable}) || {_sets_flag(name, _KEY_FLAGS)}"


def _sets_flag(name: str, flags: tuple[str, ...]) -> str:
    args = f"self.{name}.args"
    tests = " || ".join(f"a.startsWith('{flag}')" for flag in flags)
    return f"(has(self.{name}) && has({args}) && {args}.exists(a, {tests}))"


class Rollout(Part):
    """How a change reaches the engines."""

    strategy: Literal["Auto", "Surge", "InPlace"] = "Auto"
    """Auto replaces the pods of both roles at once, one pod of each role at a time, without extra
    GPUs. Surge and InPlace are reserved."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] = 60
    """Seconds an engine gets to finish its requests before it ends."""

    rules = (
        Rule(
            cel="!has(self.strategy) || self.strategy == 'Auto'",
            message="spec.rollout.strategy must be Auto: this version supports no other",
            check=lambda self: self.strategy == "Auto",
            field_path=".strategy",
        ),
    )


class Spec(Part):
    """What the user wants."""

    model: Model
    """The model both roles load."""
    engine: Engine
    """The vLLM engine of both roles."""
    placement: Placement
    """Where the engines run."""
    fabric: Fabric = Fabric()
    """The network between P and D."""
    kv_transfer: KVTransfer = KVTransfer()
    """One KV-transfer configuration for both roles."""
    prefill: Prefill = Prefill()
    """The prefill role P."""
    decode: Decode = Decode()
    """The decode role D."""
    router: Router = Router()
    """The multi-turn router."""
    rollout: Rollout = Rollout()
    """How a change reaches the engines."""
    suspend: bool = False
    """Scale engines and router to zero and keep the object."""

    rules = (
        Rule(
            cel=f"{_HANDLE_TTL} + {QUEUE_MARGIN_S} <= {_DECODE_TTL}",
            message=(
                "spec.router.handleTTLSeconds must be at most spec.kvTransfer.decodeTTLSeconds - "
                f"{QUEUE_MARGIN_S}: {_TTL_REASON}"
            ),
            message_cel=(
                "'spec.router.handleTTLSeconds is %d, but must be at most %d, which is "
                f"spec.kvTransfer.decodeTTLSeconds - {QUEUE_MARGIN_S}: {_TTL_REASON}'"
                f".format([{_HANDLE_TTL}, {_DECODE_TTL} - {QUEUE_MARGIN_S}])"
            ),
            check=lambda self: (
                self.router.handle_ttl_seconds + QUEUE_MARGIN_S
                <= self.kv_transfer.decode_ttl_seconds
            ),
            explain=lambda self: (
                f"spec.router.handleTTLSeconds is {self.router.handle_ttl_seconds}, but must be at "
                f"most {self.kv_transfer.decode_ttl_seconds - QUEUE_MARGIN_S}, which is "
                f"spec.kvTransfer.decodeTTLSeconds - {QUEUE_MARGIN_S}: {_TTL_REASON}"
            ),
            field_path=".router.handleTTLSeconds",
        ),
        Rule(
            cel=f"{_REPLICAS} == 1 || {_CONNECTOR} == 'DisaggPair'",
            message=(
                "spec.router.replicas must be 1 with spec.engine.connector Nixl: handles live in "
                "the router's memory, and a second replica would not find them"
            ),
            check=lambda self: self.router.replicas == 1 or self.engine.connector == "DisaggPair",
            field_path=".router.replicas",
        ),
        Rule(
            cel=(
                f"{_CONNECTOR} == 'Nixl' || ("
                f"{given(f'{_LIMITS}.maxConversations', MAX_CONVERSATIONS)} == {MAX_CONVERSATIONS} "
                f"&& {given(f'{_LIMITS}.maxHandleBytes', MAX_HANDLE_BYTES)} == {MAX_HANDLE_BYTES} "
                f"&& !(has(self.router) && has({_LIMITS}) && has({_LIMITS}.maxHeldTokens)))"
            ),
            message=(
                "spec.router.limits.maxConversations, maxHandleBytes and maxHeldTokens must be "
                "left out with spec.engine.connector DisaggPair: D keeps the conversations, and "
                "gives the oldest up when it needs the room"
            ),
            check=lambda self: (
                self.engine.connector == "Nixl" or not self.router.limits.bounds_handles
            ),
            field_path=".router.limits",
        ),
        Rule(
            cel=f"{_WORKERS} == 1 || {_CONNECTOR} == 'DisaggPair' || !{_BIDIRECTIONAL}",
            message=(
                "spec.router.workers must be 1 with spec.engine.connector Nixl and "
                "spec.kvTransfer.bidirectional true: a handle in the memory of one process is "
                "unknown to the others"
            ),
            check=lambda self: (
                self.router.workers == 1
                or self.engine.connector == "DisaggPair"
                or not self.kv_transfer.bidirectional
            ),
            field_path=".router.workers",
        ),
        Rule(
            cel=(
                "!has(self.engine.apiKeySecretRef) || "
                f"!({' || '.join(map(_sets_api_key, _PARTS_OF_ENGINES))})"
            ),
            message=(
                f"spec.engine.apiKeySecretRef sets {API_KEY_VARIABLE}: remove the variable and the "
                "flag --api-key from spec.engine, spec.prefill and spec.decode"
            ),
            check=lambda self: (
                self.engine.api_key_secret_ref is None
                or not any(
                    any(entry.name == API_KEY_VARIABLE for entry in part.env)
                    or any(arg.startswith(_KEY_FLAGS) for arg in part.args)
                    for part in (self.engine, self.prefill, self.decode)
                )
            ),
            field_path=".engine.apiKeySecretRef",
        ),
        Rule(
            cel=f"!({_DIRECT}) || ({_CONNECTOR} == 'DisaggPair' && {_BIDIRECTIONAL})",
            message=(
                "spec.kvTransfer.directTurns needs spec.engine.connector DisaggPair and "
                "spec.kvTransfer.bidirectional true: only a lease keeps the history in D"
            ),
            check=lambda self: (
                self.kv_transfer.direct_turns is None
                or (self.engine.connector == "DisaggPair" and self.kv_transfer.bidirectional)
            ),
            field_path=".kvTransfer.directTurns",
        ),
        Rule(
            cel=(
                f"!({_DIRECT}) || !({_sets_flag('engine', _STEP_FLAGS)} || "
                f"{_sets_flag('decode', _STEP_FLAGS)})"
            ),
            message=(
                "spec.kvTransfer.directTurns.stepTokens sets --max-num-batched-tokens of D: remove "
                "the flag from spec.engine.args and spec.decode.args"
            ),
            check=lambda self: (
                self.kv_transfer.direct_turns is None
                or not any(
                    arg.startswith(_STEP_FLAGS) for arg in [*self.engine.args, *self.decode.args]
                )
            ),
            field_path=".kvTransfer.directTurns",
        ),
        Rule(
            cel=(
                f"{given('self.fabric.hugepages', '')} == '' || "
                "(has(self.prefill) && has(self.prefill.resources) && "
                "(has(self.prefill.resources.cpu) || has(self.prefill.resources.memory)) && "
                "has(self.decode) && has(self.decode.resources) && "
                "(has(self.decode.resources.cpu) || has(self.decode.resources.memory)))"
            ),
            message=(
                "spec.fabric.hugepages needs cpu or memory in spec.prefill.resources and "
                "spec.decode.resources: Kubernetes refuses huge pages alone"
            ),
            check=lambda self: (
                not self.fabric.hugepages
                or all(
                    role.resources.cpu or role.resources.memory
                    for role in (self.prefill, self.decode)
                )
            ),
            field_path=".fabric.hugepages",
        ),
    )
