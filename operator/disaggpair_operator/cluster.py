"""What the stages ask of a Kubernetes API: the protocol and its errors.

`kube` implements it with the official client, the tests with a fake. No Kubernetes library here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from disaggpair_operator.model import Object, Ref, SecretView


class ClusterError(Exception):
    """A request the API server did not carry out.

    ClusterError
      Rejected      the object is wrong (400, 404 on a kind, 422): the same request fails again
      Forbidden     the operator lacks the right (401, 403)
      Conflict      somebody else was faster (409): read again, then retry
      Unavailable   429, 5xx or no answer: retry later
    """


class Rejected(ClusterError):
    """The API server refuses the object itself."""


class Forbidden(ClusterError):
    """The operator's account may not do this."""


class Conflict(ClusterError):
    """The object changed in between, or a precondition did not hold."""


class Unavailable(ClusterError):
    """The API server did not answer or asked to come back later."""


class Cluster(Protocol):
    """Reads and writes of Kubernetes objects. Every method may raise a ClusterError."""

    async def get(self, ref: Ref) -> Object | None:
        """The object, or None when there is none."""
        ...

    async def list(
        self, api_version: str, kind: str, namespace: str = "", selector: str = ""
    ) -> Sequence[Object]:
        """All objects of a kind, in one namespace or in all, that match a label selector."""
        ...

    async def apply(self, obj: Object) -> Object:
        """Server-side apply with our field manager, taking over fields from others."""
        ...

    async def delete(self, ref: Ref, uid: str) -> None:
        """Delete the object if it still has this UID; nothing happens when it is gone."""
        ...

    async def patch_status(self, ref: Ref, status: Mapping[str, Any]) -> Object | None:
        """Replace the status of a custom resource; None when the object is gone."""
        ...

    async def look_at_secret(self, ref: Ref) -> SecretView | None:
        """The Secret without its values, or None when there is none."""
        ...

    async def write_secret(self, obj: Object) -> None:
        """Create the Secret; Conflict when there is one of its name.

        With a resourceVersion in its metadata: set these keys of the Secret that has this version
        and leave the others as they are; Conflict when it has another one.
        """
        ...
