"""Where the engines run, and the network between them. Pure."""

import re
from typing import Annotated, Literal

from pydantic import Field

from disaggpair_operator.api.rules import Part, Rule, given
from disaggpair_operator.api.v1alpha1.field_rules import key_rule
from disaggpair_operator.api.v1alpha1.fields import (
    LabelValue,
    OptionalLabelKey,
    OptionalLabelValue,
)
from disaggpair_operator.names import ZONE_LABEL

EFA_DEVICES = 16


class Toleration(Part):
    """A taint the engines tolerate."""

    key: OptionalLabelKey = ""
    """Key of the taint; empty with operator Exists tolerates all."""
    operator: Literal["Exists", "Equal"] = "Exists"
    """How the value is compared."""
    value: OptionalLabelValue = ""
    """Value of the taint for operator Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty matches all."""

    rules = (
        Rule(
            cel=(
                f"{given('self.operator', 'Exists')} == 'Equal' ? "
                f"{given('self.key', '')} != '' : {given('self.value', '')} == ''"
            ),
            message="a toleration has a value with operator Equal only, and then a key too",
            check=lambda self: self.key != "" if self.operator == "Equal" else self.value == "",
        ),
    )


class Placement(Part):
    """Where the engines run."""

    zone: LabelValue
    """Availability zone of both roles (label topology.kubernetes.io/zone). EFA does not cross
    zones, so this is required and a hard rule."""
    instance_types: Annotated[list[LabelValue], Field(min_length=1, max_length=32)] = [
        "p5en.48xlarge",
        "p5e.48xlarge",
        "ml.p5en.48xlarge",
        "ml.p5e.48xlarge",
    ]
    """Allowed values of the node label node.kubernetes.io/instance-type. Default: H200 types."""
    node_selector: Annotated[dict[str, OptionalLabelValue], Field(max_length=16)] = {}
    """More node labels that both roles need. The zone belongs into `zone`."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = [
        Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    ]
    """Taints both roles tolerate."""
    topology_key: Literal["kubernetes.io/hostname"] = "kubernetes.io/hostname"
    """P and D never share one value of this node label: NIXL over EFA fails within a host."""

    rules = (
        key_rule("spec.placement.nodeSelector", "node_selector", "label"),
        Rule(
            cel=(
                f"!has(self.nodeSelector) || !('{ZONE_LABEL}' in self.nodeSelector) || "
                f"self.nodeSelector['{ZONE_LABEL}'] == self.zone"
            ),
            message=(
                f"spec.placement.nodeSelector must not have another {ZONE_LABEL} than "
                "spec.placement.zone"
            ),
            message_cel=(
                f"'spec.placement.nodeSelector has {ZONE_LABEL} ' + "
                f"self.nodeSelector['{ZONE_LABEL}'] + ', but spec.placement.zone is ' + self.zone "
                "+ '; leave the label out of nodeSelector'"
            ),
            check=lambda self: self.node_selector.get(ZONE_LABEL, self.zone) == self.zone,
            explain=lambda self: (
                f"spec.placement.nodeSelector has {ZONE_LABEL} {self.node_selector[ZONE_LABEL]}, "
                f"but spec.placement.zone is {self.zone}; leave the label out of nodeSelector"
            ),
            field_path=".nodeSelector",
        ),
    )


class Fabric(Part):
    """The network between P and D."""

    type: Literal["EFA", "TCP"] = "EFA"
    """EFA: libfabric with the efa provider only, NIXL backend LIBFABRIC. TCP: NIXL backend UCX; for
    trials, slow."""
    devices: Annotated[int, Field(ge=0, le=32)] = EFA_DEVICES
    """EFA devices of each engine pod (resource vpc.amazonaws.com/efa); p5en has up to 16, p5e up to
    32. With type TCP none are asked for."""
    hugepages: Annotated[str, Field(max_length=16, pattern=r"^$|^[1-9][0-9]{0,6}(Mi|Gi)$")] = ""
    """2 MiB huge pages of each engine pod, such as 5120Mi. Nodes without preallocated pages cannot
    take such a pod. Default: none."""
    security: Literal["IPCLock", "Privileged"] = "IPCLock"
    """IPCLock adds one capability; Privileged removes the pod's isolation from the node, GPUs
    included."""

    rules = (
        Rule(
            cel=(
                f"{given('self.type', 'EFA')} != 'EFA' || {given('self.devices', EFA_DEVICES)} > 0"
            ),
            message="spec.fabric.devices is 0, but must be at least 1 with type EFA",
            check=lambda self: self.type != "EFA" or self.devices > 0,
            field_path=".devices",
        ),
        Rule(
            cel="!has(self.hugepages) || !self.hugepages.matches('[13579]Mi$')",
            message="spec.fabric.hugepages must be a multiple of 2Mi, the size of a page",
            check=lambda self: not re.search("[13579]Mi$", self.hugepages),
            field_path=".hugepages",
        ),
    )
