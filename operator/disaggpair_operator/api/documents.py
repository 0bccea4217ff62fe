"""YAML text as plain documents, whoever wrote the text. Pure.

Read as kubectl reads it: the values of JSON alone, a timestamp is text, and an alias stands for a
copy. Size, depth and the number of values with every alias counted in full are bounded, so that
neither reading the documents nor walking over them takes long.
"""

from typing import Any, Final

import yaml

MAX_CHARACTERS: Final = 2**20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 50_000
"""Values and keys of all documents together; a pair with every list at its bound has some 2,000."""

_MAX_NUMBER: Final = 64
"""Characters of a number; the time to read one grows with their square."""
_LONGEST: Final = 500
"""Characters of what PyYAML says; it repeats tags in full."""
_TAG: Final = "tag:yaml.org,2002:"
_NUMBERS: Final = (f"{_TAG}int", f"{_TAG}float")
_TAGS: Final = (*_NUMBERS, *(f"{_TAG}{kind}" for kind in ("null", "bool", "str", "seq", "map")))
_MERGE: Final = f"{_TAG}merge"
_CONSTRUCTORS: Final[dict[str | None, Any]] = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*_TAGS, None)
}
_RESOLVERS: Final = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (*_TAGS, _MERGE)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(text: str) -> list[Any]:
    """The documents of a YAML stream, without the empty ones.

    Raises:
        ValueError: not YAML, or out of bounds.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has more than {MAX_CHARACTERS:,} characters")
    try:
        return [document for document in yaml.load_all(text, _Loader) if document]
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())
        raise ValueError(f"the YAML cannot be read: {told:.{_LONGEST}}") from error


class _Loader(yaml.SafeLoader):
    """Counts while it composes nodes, which is before anything is made of them."""

    yaml_constructors = _CONSTRUCTORS
    yaml_implicit_resolvers = _RESOLVERS

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._spans: dict[yaml.Node, tuple[int, int]] = {}
        """Values in a complete node and levels below it, each alias in full."""
        self._lowest = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node, or find the one an alias stands for."""
        alias = self.check_event(yaml.AliasEvent)
        mark: yaml.Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # of PyYAML
        before, outer_lowest = self._values, self._lowest
        self._depth += 1
        self._lowest = self._depth
        if not alias:
            self._count(1, self._depth, mark)
        node = super().compose_node(parent, index)
        if node is not None and alias:
            if node not in self._spans:
                raise yaml.composer.ComposerError(None, None, "a value contains itself", mark)
            values, levels = self._spans[node]
            self._count(values, self._depth + levels, mark)
        elif node is not None:
            self._spans[node] = (self._values - before, self._lowest - self._depth)
        self._depth -= 1
        self._lowest = max(outer_lowest, self._lowest)
        return node

    def _count(self, values: int, lowest: int, mark: yaml.Mark) -> None:
        self._values += values
        self._lowest = max(self._lowest, lowest)
        if self._values > MAX_VALUES:
            problem = f"more than {MAX_VALUES:,} values, each alias counted in full"
            raise yaml.composer.ComposerError(None, None, problem, mark)
        if self._lowest > MAX_DEPTH:
            problem = f"values are nested deeper than {MAX_DEPTH}"
            raise yaml.composer.ComposerError(None, None, problem, mark)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the value of a node; PyYAML's own errors for odd scalars say little or are bare."""
        if node.tag in _NUMBERS and len(node.value) > _MAX_NUMBER:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number has {len(node.value)} characters", node.start_mark
            )
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, ValueError) as error:
            kind = node.tag.removeprefix(_TAG)
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value!r:.60} cannot be read as {kind}", node.start_mark
            ) from error
