"""The revision: a hash of what both roles must share to understand each other."""

import hashlib
import json

from disaggpair_operator.api.v1alpha1 import Spec
from disaggpair_operator.plan.engine_args import shared_arguments
from disaggpair_operator.plan.kv_transfer import kv_transfer_config
from disaggpair_operator.plan.releases import Release

_LENGTH = 10


def revision(spec: Spec, release: Release) -> str:
    """Ten hexadecimal digits over what the roles share.

    That is image, shared arguments and variables and both KV configurations. Replicas, placement
    and what one role has to itself do not count.
    """
    shared = {
        "image": spec.engine.image,
        "args": [spec.model.name, *shared_arguments(spec)],
        "env": [entry.model_dump() for entry in spec.engine.env],
        "prefill": kv_transfer_config(spec, release, "prefill"),
        "decode": kv_transfer_config(spec, release, "decode"),
    }
    text = json.dumps(shared, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]
