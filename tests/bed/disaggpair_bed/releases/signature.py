"""The parameters of a function, written as Python writes them: `(self, request, data=...)`."""

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import _ParameterKind as Kind
from typing import Any

_POSITIONAL = (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)
_COLLECTING = (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)
_STARS = {Kind.VAR_POSITIONAL: "*", Kind.VAR_KEYWORD: "**"}


@dataclass(frozen=True)
class Parameter:
    """One of them; which default it has does not matter to a caller."""

    name: str
    kind: Kind
    has_default: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether a call has to give it."""
        return not self.has_default and self.kind not in _COLLECTING

    def __str__(self) -> str:
        return f"{_STARS.get(self.kind, '')}{self.name}{'=...' if self.has_default else ''}"


@dataclass(frozen=True)
class Signature:
    """Parameters and the annotation of what is returned, None without one."""

    parameters: tuple[Parameter, ...]
    returns: str | None = None

    def __str__(self) -> str:
        inside = ", ".join(_written(self.parameters))
        return f"({inside})" + (f" -> {self.returns}" if self.returns else "")

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(parameter.name for parameter in self.parameters)

    def takes(self, call: "Signature") -> bool:
        """Whether a caller who knows the parameters of `call` only can go on calling."""
        known = len(call.parameters)
        same = all(
            (here.name, here.kind) == (there.name, there.kind)
            and (here.has_default or not there.has_default)
            for here, there in zip(self.parameters, call.parameters, strict=False)
        )
        more = self.parameters[known:]
        return len(self.parameters) >= known and same and not any(one.is_needed for one in more)


def parse(text: str) -> Signature:
    """The signature that a text says."""
    (function,) = ast.parse(f"def _{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return of_definition(function)


def of_definition(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """The signature of a definition in source text."""
    returns = ast.unparse(function.returns) if function.returns else None
    return Signature(tuple(_defined(function.args)), returns)


def of_callable(function: Callable[..., Any]) -> Signature:
    """The signature of a live function; without what it returns, which may be no text by then."""
    return Signature(
        tuple(
            Parameter(one.name, one.kind, one.default is not one.empty)
            for one in inspect.signature(function).parameters.values()
        )
    )


def _defined(arguments: ast.arguments) -> Iterator[Parameter]:
    positional = [
        *((one.arg, Kind.POSITIONAL_ONLY) for one in arguments.posonlyargs),
        *((one.arg, Kind.POSITIONAL_OR_KEYWORD) for one in arguments.args),
    ]
    first_default = len(positional) - len(arguments.defaults)
    for index, (name, kind) in enumerate(positional):
        yield Parameter(name, kind, index >= first_default)
    if arguments.vararg:
        yield Parameter(arguments.vararg.arg, Kind.VAR_POSITIONAL)
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(one.arg, Kind.KEYWORD_ONLY, default is not None)
    if arguments.kwarg:
        yield Parameter(arguments.kwarg.arg, Kind.VAR_KEYWORD)


def _written(parameters: tuple[Parameter, ...]) -> Iterator[str]:
    before: Kind | None = None
    for parameter in parameters:
        if before is Kind.POSITIONAL_ONLY and parameter.kind is not Kind.POSITIONAL_ONLY:
            yield "/"
        if parameter.kind is Kind.KEYWORD_ONLY and (before in _POSITIONAL or before is None):
            yield "*"
        yield str(parameter)
        before = parameter.kind
    if before is Kind.POSITIONAL_ONLY:
        yield "/"
