"""What a release has of the declaration, as JSON, and what it lacks, in words.

A snapshot holds of each declared class the declared methods and attributes that the release has,
and all names of those classes that the connector subclasses: one that appears later must be none
of ours. Names, parameters and annotations only; no code of vLLM.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from disaggpair_bed.releases import signature
from disaggpair_bed.releases.relied import CLASSES, FACTS, Relied
from disaggpair_bed.releases.surface import Class, find_class
from disaggpair_bed.releases.wheel import Modules, Sources

Snapshot = Mapping[str, Any]

HARMLESS: Final = frozenset({"__init__", "__post_init__"})


def take(version: str, sources: Sources) -> Snapshot:
    """Read a release."""
    modules = Modules(sources)
    return {
        "vllm": version,
        "classes": {
            relied.name: _class(relied, found)
            for relied in CLASSES
            if (found := find_class(modules, relied.name)) is not None
        },
        "facts": {fact.__name__: fact(modules) for fact in FACTS},
    }


def dumps(snapshot: Snapshot) -> str:
    """The text of a snapshot's file."""
    return json.dumps(snapshot, indent=1) + "\n"


def lacks(snapshot: Snapshot) -> list[str]:
    """A sentence for every point in which a release is not as declared."""
    found = [sentence for relied in CLASSES for sentence in _class_lacks(relied, snapshot)]
    for fact in FACTS:
        if not snapshot["facts"].get(fact.__name__, False):
            found.append(f"No longer found: {fact.__doc__}")
    return found


def hides(snapshot: Snapshot, ours: Mapping[str, Collection[str]]) -> list[str]:
    """A sentence for every name of vLLM that a class of ours hides without a declaration.

    Args:
        snapshot: the release.
        ours: names that our subclasses define, by vLLM's class.
    """
    declared = {relied.name: {*relied.methods, *relied.attributes} for relied in CLASSES}
    return [
        f"{short(name)} has {member}, which a class of the connector defines for itself."
        for name, members in ours.items()
        for member in sorted(members)
        if member in snapshot["classes"].get(name, {}).get("members", ())
        and member not in declared[name] | HARMLESS
    ]


def short(name: str) -> str:
    """The class without its module."""
    return name.partition(":")[2]


def _class(relied: Relied, found: Class) -> dict[str, Any]:
    methods = {name: found.signature(name) for name in relied.methods}
    attributes = found.attributes()
    taken: dict[str, Any] = {
        "methods": {name: str(one) for name, one in methods.items() if one is not None},
        "attributes": {name: attributes[name] for name in relied.attributes if name in attributes},
    }
    if relied.overrides:
        taken["members"] = sorted(found.members())
    return taken


def _class_lacks(relied: Relied, snapshot: Snapshot) -> Iterator[str]:
    name = short(relied.name)
    found = snapshot["classes"].get(relied.name)
    if found is None:
        yield f"{relied.name} is not there."
        return
    for method in relied.methods:
        if method not in found["methods"]:
            yield f"{name}.{method} is not there."
            continue
        here = signature.parse(found["methods"][method])
        for sentence in _method_lacks(relied, method, here):
            yield f"{name}.{method} is {here}: {sentence}"
    for attribute, annotation in relied.attributes.items():
        if attribute not in found["attributes"]:
            yield f"{name}.{attribute} is not there."
        elif annotation is not None and found["attributes"][attribute] != annotation:
            here = found["attributes"][attribute]
            yield f"{name}.{attribute} is {here}, and the connector relies on {annotation}."


def _method_lacks(relied: Relied, method: str, here: signature.Signature) -> Iterator[str]:
    if (text := relied.overrides.get(method)) is not None:
        ours = signature.parse(text)
        if here.parameters != ours.parameters:
            yield f"the connector overrides it as {ours}."
        yield from _returns(here, ours)
    if (text := relied.calls.get(method)) is not None:
        call = signature.parse(text)
        if not here.takes(call):
            yield f"the connector calls it as {call}."
        yield from _returns(here, call)
    for parameter in relied.reads.get(method, ()):
        if parameter not in here.names:
            yield f"the connector reads {parameter}."


def _returns(here: signature.Signature, wanted: signature.Signature) -> Iterator[str]:
    if wanted.returns is not None and here.returns != wanted.returns:
        yield f"the connector relies on what it returned, {wanted.returns}."
