"""Classes, methods and attributes in sources that are not imported.

A class is named `module:Class`. Its bases are followed through imports at the top of modules, as
far as they lie within vLLM, in the order in which they are written: enough for single inheritance
with mixins, which is all that vLLM has in the classes asked for.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from disaggpair_bed.releases import signature
from disaggpair_bed.releases.signature import Signature
from disaggpair_bed.releases.wheel import Modules

PROPERTIES: Final = ("property", "cached_property", "functools.cached_property")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Class:
    """One class and the classes that it inherits from, itself first."""

    name: str
    line: tuple[ast.ClassDef, ...]

    def method(self, name: str) -> Function | None:
        """The definition that a call reaches; a property is none."""
        for found in self._defined(name):
            return found
        return None

    def own(self, name: str) -> Function | None:
        """The definition in this class itself."""
        return next(_functions(self.line[0], name), None)

    def signature(self, name: str) -> Signature | None:
        """Parameters of a method."""
        if found := self.method(name):
            return signature.of_definition(found)
        return None

    def attributes(self) -> dict[str, str | None]:
        """Annotation by name of all that is assigned or a property, None without annotation."""
        found: dict[str, str | None] = {}
        for one in self.line:
            for name, annotation in _attributes(one):
                if found.get(name) is None:
                    found[name] = annotation
        return found

    def members(self) -> set[str]:
        """Every name that a subclass would hide by defining it."""
        methods = {
            item.name for one in self.line for item in one.body if isinstance(item, Function)
        }
        return methods | self.attributes().keys()

    def _defined(self, name: str) -> Iterator[Function]:
        for one in self.line:
            yield from _functions(one, name)


def find_class(modules: Modules, name: str) -> Class | None:
    """A class by `module:Class`; None if the release has none of that name there."""
    line = tuple(_ancestry(modules, name, seen=set()))
    return Class(name, line) if line else None


def find_method(modules: Modules, class_name: str, method: str) -> Function | None:
    """A method of such a class, inherited or not; None without the class or the method."""
    found = find_class(modules, class_name)
    return found.method(method) if found else None


def _ancestry(modules: Modules, name: str, seen: set[str]) -> Iterator[ast.ClassDef]:
    module, _, class_name = name.partition(":")
    tree = modules.tree(module)
    if tree is None or name in seen:
        return
    seen.add(name)
    statements = list(_top_level(tree))
    for statement in statements:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            yield statement
            for base in statement.bases:
                if isinstance(base, ast.Name):
                    yield from _ancestry(modules, f"{module}:{base.id}", seen)
            return
    for statement in statements:  # the name is one that the module imports
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("vllm"):
            for alias in statement.names:
                if (alias.asname or alias.name) == class_name:
                    yield from _ancestry(modules, f"{statement.module}:{alias.name}", seen)


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements of a module, those under an `if` (of TYPE_CHECKING, mostly) included."""
    for statement in tree.body:
        if isinstance(statement, ast.If):
            yield from [*statement.body, *statement.orelse]
        else:
            yield statement


def _functions(one: ast.ClassDef, name: str) -> Iterator[Function]:
    for item in reversed(one.body):  # the last one counts, as after typing.overload
        if isinstance(item, Function) and item.name == name and not _is_property(item):
            yield item


def _is_property(function: Function) -> bool:
    return any(ast.unparse(one) in PROPERTIES for one in function.decorator_list)


def _attributes(one: ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    for item in one.body:
        if isinstance(item, Function):
            if _is_property(item):
                yield item.name, ast.unparse(item.returns) if item.returns else None
            yield from _assigned(item, of="self")
        else:
            yield from _assigned(item, of=None)


def _assigned(within: ast.AST, of: str | None) -> Iterator[tuple[str, str | None]]:
    """Names that are assigned to: attributes of `of`, or plain ones."""
    for node in ast.walk(within):
        if isinstance(node, ast.AnnAssign):
            for name in _targets(node.target, of):
                yield name, ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in _targets(target, of):
                    yield name, None


def _targets(target: ast.expr, of: str | None) -> Iterator[str]:
    if isinstance(target, ast.Tuple):
        for element in target.elts:
            yield from _targets(element, of)
    elif of is None and isinstance(target, ast.Name):
        yield target.id
    elif (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == of
    ):
        yield target.attr
