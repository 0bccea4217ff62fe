"""Labels, annotations and child names. Pure; everything that names an object is here."""

import hashlib
from typing import Final

GROUP: Final = "disaggpair.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DisaggPair"
PLURAL: Final = "disaggpairs"

PAIR_LABEL: Final = f"{GROUP}/pair"
"""On every child and every pod; its value is the pair's name, shortened as `label_value` does."""
ROLE_LABEL: Final = f"{GROUP}/role"
"""On children and pods: `prefill`, `decode` or `router`."""
REVISION_LABEL: Final = f"{GROUP}/revision"
"""On engine pods: engines of different revisions are never paired."""
CONFIG_HASH_ANNOTATION: Final = f"{GROUP}/config-hash"
"""On the router's pod template: a changed configuration replaces the pod."""

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"

FIELD_MANAGER: Final = "disaggpair-operator"
MANAGED_BY: Final = "disaggpair-operator"

PREFILL: Final = "prefill"
DECODE: Final = "decode"
ROUTER: Final = "router"
KEYS: Final = "keys"
"""The part that the pair's Secret is."""

MAX_NAME: Final = 63
_HASH_LENGTH: Final = 8
# A Deployment's pods are called <deployment>-<10>-<5>; a Deployment name of 46 characters keeps
# the pod's name, which is also its hostname, within 63.
_MAX_CHILD: Final = 46


def shortened(name: str, limit: int) -> str:
    """`name` itself when it is a DNS label of at most `limit` characters, else one made from it.

    A DNS label begins with a letter and has no dots. What is made carries a digest of the whole
    name, so that `a.b` and `a-b` do not meet.
    """
    label = name.replace(".", "-")
    if label == name and len(label) <= limit and label[0].isalpha():
        return label
    if not label[0].isalpha():
        label = f"p-{label}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    head = label[: limit - _HASH_LENGTH - 1].rstrip("-")
    return f"{head}-{digest}"


def child_name(pair: str, part: str) -> str:
    """Name of the pair's child for `part`: at most 46 characters, unique per pair and part."""
    return f"{shortened(pair, _MAX_CHILD - len(part) - 1)}-{part}"


def label_value(pair: str) -> str:
    """The pair's name as a label value, at most 63 characters."""
    return shortened(pair, MAX_NAME)
