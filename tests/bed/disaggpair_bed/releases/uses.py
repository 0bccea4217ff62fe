"""What the connector's own sources take from vLLM, found without an import of either.

Two kinds of places are found: the connector's subclasses of vLLM's classes (what they override,
what they reach through `self` and `super()`), and values with a name that stands for one class of
vLLM throughout the connector, `RECEIVERS`. What is reached in another way is not seen.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from disaggpair_bed.releases.facts import MANAGER, POOL, REQUEST
from disaggpair_bed.releases.nixl_facts import HANDSHAKE, PULL_SCHEDULER
from disaggpair_bed.releases.surface import Function

RECEIVERS: Final[Mapping[str, str]] = {
    "request": REQUEST,
    "manager": MANAGER,
    "_manager": MANAGER,
    "kv_cache_manager": MANAGER,
    "_pool": POOL,
    "block": "vllm.v1.core.kv_cache_utils:KVCacheBlock",
    "lora": "vllm.lora.request:LoRARequest",
    "feature": "vllm.multimodal.inputs:MultiModalFeatureSpec",
    "mm_position": "vllm.multimodal.inputs:PlaceholderRange",
    "connector_output": "vllm.v1.outputs:KVConnectorOutput",
    "xfer_handshake_metadata": HANDSHAKE,
    "vllm_config": "vllm.config:VllmConfig",
    "kv_transfer_config": "vllm.config:KVTransferConfig",
    "transfer": "vllm.config:KVTransferConfig",
    "parallel_config": "vllm.config:ParallelConfig",
    "scheduler": PULL_SCHEDULER,
    "kv_cache_spec": "vllm.v1.kv_cache_interface:KVCacheSpec",
    "aux_output_config": "vllm.config.aux_output:AuxOutputConfig",
}
"""vLLM's class by the last name of the expression before the dot."""

ENGINE: Final = "engine"
"""The connector's module that imports vLLM's names; the others reach them through it."""

_NO_CLASSES: Final = ("vllm:envs", "vllm.platforms:current_platform")
"""Names that the connector imports and that `facts.has_the_names_outside_of_classes` covers."""

_NOT_VLLM: Final = ("listener", "reader", "wire")
"""Modules that speak HTTP begin so: a request there is one of HTTP."""


@dataclass(frozen=True, order=True)
class Use:
    """One name of vLLM."""

    class_name: str
    """`module:Class`."""
    member: str


@dataclass(frozen=True)
class Subclass:
    """A class of the connector that inherits from one of vLLM's."""

    base: str
    """`module:Class`."""
    node: ast.ClassDef

    @property
    def defines(self) -> set[str]:
        """Every name that it defines or assigns to itself."""
        methods = {item.name for item in self.node.body if isinstance(item, Function)}
        assigned = {
            node.attr
            for node in ast.walk(self.node)
            if _is_attribute_of(node, "self") and isinstance(node.ctx, ast.Store)
        }
        return methods | assigned

    @property
    def reaches(self) -> set[str]:
        """Every name that it takes from vLLM's class, overridden or not."""
        methods = {item.name for item in self.node.body if isinstance(item, Function)}
        through_self = {node.attr for node in ast.walk(self.node) if _is_attribute_of(node, "self")}
        through_super = {
            node.attr
            for node in ast.walk(self.node)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()"
        }
        return (through_self - self.defines) | through_super | methods & {"__init__"}


def imported(package: Path) -> dict[str, str]:
    """vLLM's names in `ENGINE`, `module:name` by name."""
    tree = ast.parse((package / f"{ENGINE}.py").read_text())
    return {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm"
        for alias in node.names
    }


def subclasses(package: Path) -> list[Subclass]:
    """The connector's classes on top of vLLM's."""
    names = imported(package)
    return [
        Subclass(names[base.attr], node)
        for tree in _trees(package).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Attribute) and base.attr in names
    ]


def uses(package: Path) -> set[Use]:
    """All names of vLLM's classes that are found."""
    found = {Use(one.base, member) for one in subclasses(package) for member in one.reaches}
    receivers = {**RECEIVERS, **imported(package)}
    for module, tree in _trees(package).items():
        if not module.startswith(_NOT_VLLM):
            found.update(_received(tree, receivers))
    return {use for use in found if use.class_name not in _NO_CLASSES}


def identifiers(package: Path) -> set[str]:
    """Every name that the connector's sources hold, of whatever it may be."""
    return {
        name
        for tree in _trees(package).values()
        for node in ast.walk(tree)
        for name in (
            getattr(node, "attr", None),
            getattr(node, "name", None),
            getattr(node, "id", None),
            getattr(node, "value", None),
        )
        if isinstance(name, str)
    }


def _received(tree: ast.AST, receivers: Mapping[str, str]) -> Iterator[Use]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            receiver = node.value
            name = receiver.attr if isinstance(receiver, ast.Attribute) else ""
            name = receiver.id if isinstance(receiver, ast.Name) else name
            if name in receivers:
                yield Use(receivers[name], node.attr)


def _trees(package: Path) -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text()) for path in sorted(package.glob("*.py"))}


def _is_attribute_of(node: ast.AST, name: str) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    )
