"""A Kubernetes API in memory, as far as the operator's Cluster protocol goes.

It keeps what the real one is relied on for: UIDs, resource versions that stand still when nothing
changes, generations that count changes of the spec, field ownership in server-side apply (whole
lists are one field), UID preconditions, and garbage collection by owner reference. It checks no
schema and defaults nothing.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disaggpair_operator.cluster import ClusterError, Conflict
from disaggpair_operator.model import Object, Ref, SecretView
from disaggpair_operator.ownership import ref_of

OPERATOR = "disaggpair-operator"
_SYSTEM_FIELDS = ("uid", "resourceVersion", "generation", "deletionTimestamp", "creationTimestamp")


@dataclass(frozen=True)
class Call:
    """One request, in the words of an RBAC rule."""

    verb: str
    kind: str
    name: str = ""
    """Empty for a list."""
    subresource: str = ""


@dataclass
class _Fault:
    verb: str
    kind: str
    name: str
    error: ClusterError
    times: int


class FakeCluster:
    """Objects by reference, with a log of the calls made through the protocol."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._objects: dict[Ref, dict[str, Any]] = {}
        self._applied: dict[tuple[Ref, str], Mapping[str, Any]] = {}
        self._faults: list[_Fault] = []
        self._version = 0
        self._uids = 0

    # -- what a test does behind the operator's back ------------------------------------------

    def fail(
        self, verb: str, kind: str, error: ClusterError, *, name: str = "", times: int = 1
    ) -> None:
        """Let the next `times` calls of this verb on this kind (and name) raise the error."""
        self._faults.append(_Fault(verb, kind, name, error, times))

    def put(self, obj: Object, manager: str = "user") -> Object:
        """Apply an object as somebody else."""
        return self._apply(obj, manager)

    def take(self, ref: Ref) -> Object | None:
        """The object as it is, without a call being logged."""
        found = self._objects.get(ref)
        return copy.deepcopy(found) if found is not None else None

    def remove(self, ref: Ref) -> None:
        """Delete an object, and what it owns, at once."""
        gone = self._objects.pop(ref)
        self._applied = {key: value for key, value in self._applied.items() if key[0] != ref}
        self._collect(gone["metadata"]["uid"])

    def mark_deleted(self, ref: Ref) -> None:
        """Set the deletion timestamp, as for an object that a finalizer holds."""
        self._objects[ref]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._touch(self._objects[ref])

    def refs(self, kind: str = "") -> list[Ref]:
        """Where objects are, of one kind or of all."""
        return [ref for ref in self._objects if not kind or ref.kind == kind]

    def writes(self) -> list[Call]:
        """The logged calls that may change something."""
        return [call for call in self.calls if call.verb in ("create", "patch", "delete")]

    # -- the protocol -------------------------------------------------------------------------

    async def get(self, ref: Ref) -> Object | None:
        """See the protocol."""
        self._log(Call("get", ref.kind, ref.name))
        return self.take(ref)

    async def list(
        self, api_version: str, kind: str, namespace: str = "", selector: str = ""
    ) -> Sequence[Object]:
        """See the protocol."""
        self._log(Call("list", kind))
        return [
            copy.deepcopy(obj)
            for ref, obj in self._objects.items()
            if (ref.api_version, ref.kind) == (api_version, kind)
            and (not namespace or ref.namespace == namespace)
            and _matches(obj, selector)
        ]

    async def apply(self, obj: Object) -> Object:
        """See the protocol."""
        ref = ref_of(obj)
        self._log(Call("patch", ref.kind, ref.name))
        return self._apply(obj, OPERATOR)

    async def delete(self, ref: Ref, uid: str) -> None:
        """See the protocol."""
        self._log(Call("delete", ref.kind, ref.name))
        found = self._objects.get(ref)
        if found is None:
            return
        if found["metadata"]["uid"] != uid:
            raise Conflict(f"{ref} has another UID")
        self.remove(ref)

    async def patch_status(self, ref: Ref, status: Mapping[str, Any]) -> Object | None:
        """See the protocol."""
        self._log(Call("patch", ref.kind, ref.name, "status"))
        found = self._objects.get(ref)
        if found is None:
            return None
        if found.get("status") != status:
            found["status"] = copy.deepcopy(dict(status))
            self._touch(found)
        return self.take(ref)

    async def look_at_secret(self, ref: Ref) -> SecretView | None:
        """See the protocol."""
        self._log(Call("get", ref.kind, ref.name))
        found = self._objects.get(ref)
        if found is None:
            return None
        rest = copy.deepcopy({key: value for key, value in found.items() if key != "data"})
        data = found.get("data") or {}
        return SecretView(rest, frozenset(key for key, value in data.items() if value))

    async def write_secret(self, obj: Object) -> None:
        """See the protocol."""
        ref = ref_of(obj)
        found = self._objects.get(ref)
        version = obj["metadata"].get("resourceVersion")
        self._log(Call("patch" if version else "create", ref.kind, ref.name))
        if version is None:
            if found is not None:
                raise Conflict(f"{ref} exists")
            self._apply(obj, f"{OPERATOR}-create")
            return
        if found is None or found["metadata"]["resourceVersion"] != version:
            raise Conflict(f"{ref} has another version")
        _merge(found, {"data": obj["data"]})
        self._touch(found)

    # -- inside -------------------------------------------------------------------------------

    def _log(self, call: Call) -> None:
        self.calls.append(call)
        for fault in self._faults:
            wanted = (fault.verb, fault.kind) == (call.verb, call.kind)
            if wanted and fault.times and fault.name in ("", call.name):
                fault.times -= 1
                raise fault.error

    def _apply(self, obj: Object, manager: str) -> Object:
        ref = ref_of(obj)
        config = copy.deepcopy(dict(obj))
        config["metadata"] = {
            key: value for key, value in config["metadata"].items() if key not in _SYSTEM_FIELDS
        }
        found = self._objects.get(ref)
        uid = obj["metadata"].get("uid")
        version = obj["metadata"].get("resourceVersion")
        if version and found is not None and found["metadata"]["resourceVersion"] != version:
            raise Conflict(f"{ref} has another version")
        if uid and (found is None or found["metadata"]["uid"] != uid):
            raise Conflict(f"{ref} has another UID")
        if found is None:
            self._uids += 1
            found = {
                "apiVersion": ref.api_version,
                "kind": ref.kind,
                "metadata": {"name": ref.name, "uid": f"uid-{self._uids}", "generation": 1},
            }
            before = None
            self._objects[ref] = found
        else:
            before = copy.deepcopy(found)
        dropped = set(_paths(self._applied.get((ref, manager), {}))) - set(_paths(config))
        for path in dropped:
            _remove(found, path)
        _merge(found, config)
        self._applied[ref, manager] = config
        if before is not None and found.get("spec") != before.get("spec"):
            found["metadata"]["generation"] += 1
        if found != before:
            self._touch(found)
        return copy.deepcopy(found)

    def _touch(self, obj: dict[str, Any]) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)

    def _collect(self, owner_uid: str) -> None:
        owned = [
            ref
            for ref, obj in self._objects.items()
            if any(r["uid"] == owner_uid for r in obj["metadata"].get("ownerReferences", ()))
        ]
        for ref in owned:
            self.remove(ref)


def _matches(obj: Object, selector: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    terms = [term.partition("=") for term in selector.split(",") if term]
    return all(labels.get(key) == value for key, _, value in terms)


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the leaves: everything that is no mapping, and empty mappings."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _paths(item, (*path, key))
    elif path:
        yield path


def _remove(obj: dict[str, Any], path: tuple[str, ...]) -> None:
    for key in path[:-1]:
        obj = obj.get(key, {})
    obj.pop(path[-1], None)


def _merge(target: dict[str, Any], config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)
