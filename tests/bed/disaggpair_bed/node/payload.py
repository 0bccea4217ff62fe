"""What the files of configMap, secret, downwardAPI and projected volumes contain. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from disaggpair_bed.node.downward import Placement, field_value, resource_value
from disaggpair_bed.node.env import Sources
from disaggpair_bed.node.errors import MissingReference, SpecError
from disaggpair_bed.node.spec import Object, Pod

RENDERED = ("configMap", "secret", "downwardAPI", "projected")
DEFAULT_MODE = 0o644


@dataclass(frozen=True)
class File:
    """One file of a volume."""

    content: bytes
    mode: int


@dataclass(frozen=True)
class TokenRequest:
    """A service account token that a projected volume wants."""

    audience: str
    expiration_s: int
    path: str


def token_requests(volume: Object) -> list[TokenRequest]:
    """The tokens of a projected volume."""
    return [
        TokenRequest(
            audience=source["serviceAccountToken"].get("audience", ""),
            expiration_s=int(source["serviceAccountToken"].get("expirationSeconds") or 3600),
            path=source["serviceAccountToken"]["path"],
        )
        for source in (volume.get("projected") or {}).get("sources") or ()
        if "serviceAccountToken" in source
    ]


def volume_references(volume: Object) -> Iterator[tuple[str, str]]:
    """Kind and name of each ConfigMap and Secret a volume shows."""
    if "configMap" in volume:
        yield "ConfigMap", volume["configMap"]["name"]
    if "secret" in volume:
        yield "Secret", volume["secret"]["secretName"]
    for source in (volume.get("projected") or {}).get("sources") or ():
        for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
            if key in source:
                yield kind, source[key]["name"]


def render(
    volume: Object,
    pod: Pod,
    place: Placement,
    sources: Sources,
    tokens: Mapping[TokenRequest, str],
) -> dict[str, File]:
    """The files of one volume by relative path; raises MissingReference like `env`."""
    if "projected" in volume:
        spec = volume["projected"]
        mode = _default_mode(spec)
        files: dict[str, File] = {}
        for request in token_requests(volume):
            # Readable by the owner alone, as the kubelet does without an fsGroup or runAsUser.
            files[request.path] = File(tokens[request].encode(), 0o600)
        for source in spec.get("sources") or ():
            files |= _source_files(source, mode, pod, place, sources)
        return files
    if "secret" in volume:
        spec = {**volume["secret"], "name": volume["secret"]["secretName"]}
        return _source_files({"secret": spec}, _default_mode(spec), pod, place, sources)
    for key in ("configMap", "downwardAPI"):
        if key in volume:
            return _source_files(volume, _default_mode(volume[key]), pod, place, sources)
    raise AssertionError(f"not a rendered volume: {sorted(volume)}")


def _default_mode(spec: Object) -> int:
    mode = spec.get("defaultMode")
    return DEFAULT_MODE if mode is None else int(mode)


def _source_files(
    source: Object, mode: int, pod: Pod, place: Placement, sources: Sources
) -> dict[str, File]:
    if "serviceAccountToken" in source:
        return {}
    if "downwardAPI" in source:
        return _downward_files(source["downwardAPI"], mode, pod, place)
    for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if key in source:
            return _object_files(source[key], kind, mode, sources)
    raise SpecError(f"projected source {sorted(source)} is not supported by process nodes")


def _object_files(spec: Object, kind: str, mode: int, sources: Sources) -> dict[str, File]:
    data, optional = sources.data(kind, spec["name"]), bool(spec.get("optional"))
    if data is None:
        if optional:
            return {}
        raise MissingReference(f"{kind.lower()} {spec['name']!r} not found")
    items = spec.get("items")
    if not items:
        return {key: File(value, mode) for key, value in data.items()}
    files: dict[str, File] = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], int(item.get("mode") or mode))
        elif not optional:
            raise MissingReference(
                f"{kind.lower()} {spec['name']!r} references non-existent key {item['key']!r}"
            )
    return files


def _downward_files(spec: Object, mode: int, pod: Pod, place: Placement) -> dict[str, File]:
    files: dict[str, File] = {}
    for item in spec.get("items") or ():
        if "fieldRef" in item:
            text = field_value(item["fieldRef"]["fieldPath"], pod, place)
        else:
            text = resource_value(item["resourceFieldRef"], pod.containers[0], pod, place)
        files[item["path"]] = File(text.encode(), int(item.get("mode") or mode))
    return files
