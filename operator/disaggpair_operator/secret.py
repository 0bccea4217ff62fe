"""A pair's own Secret: made once with random values, which nobody reads back. Writes only.

Not by server-side apply: that puts every field back to one that is known, and nobody knows these.
A Secret is created where there is none, and only a key without a value is filled later.
"""

import base64
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from disaggpair_operator.cluster import Cluster, ClusterError
from disaggpair_operator.model import KeySecret, Object, Owner
from disaggpair_operator.ownership import ref_of, require_ours

_KEY_BYTES: Final = 32


def random_key() -> str:
    """A new key: 32 random bytes as base64url, 43 characters."""
    return secrets.token_urlsafe(_KEY_BYTES)


async def fill_secret(
    cluster: Cluster, wanted: KeySecret, owner: Owner, new_key: Callable[[], str]
) -> bool:
    """Give every wanted key a value where it has none, and say whether that changed anything.

    A value that is there stays, whoever wrote it. Raises NotOurs for a Secret that the pair does
    not control, and ClusterError; Conflict when somebody else wrote in between.
    """
    ref = ref_of(wanted.obj)
    seen = await cluster.look_at_secret(ref)
    if seen is None:
        await _write(cluster, wanted.obj, wanted.keys, new_key)
        return True
    require_ours(seen.obj, owner)
    missing = [key for key in wanted.keys if key not in seen.filled]
    if not missing:
        return False
    # This version and no later one: a value that came in between would be lost.
    version = {key: seen.obj["metadata"][key] for key in ("uid", "resourceVersion")}
    metadata = {"name": ref.name, "namespace": ref.namespace, **version}
    await _write(cluster, {**wanted.obj, "metadata": metadata}, missing, new_key)
    return True


async def _write(
    cluster: Cluster, obj: Object, keys: Iterable[str], new_key: Callable[[], str]
) -> None:
    values = {key: new_key() for key in keys}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    try:
        await cluster.write_secret({**obj, "data": data})
    except ClusterError as error:
        # A refusal, such as an admission webhook's, may quote what it refuses.
        said = str(error)
        for value in (*values.values(), *data.values()):
            said = said.replace(value, "(a key)")
        raise type(error)(said) from None
