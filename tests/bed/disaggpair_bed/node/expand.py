"""Expansion of `$(NAME)` in commands, arguments and environment values, as Kubernetes does it."""

from collections.abc import Mapping


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; an unknown name stays as it is, `$$` stands for `$`."""
    out: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        out.append(text[at:dollar])
        follower = text[dollar + 1 : dollar + 2]
        end = text.find(")", dollar) if follower == "(" else -1
        if end >= 0:
            name = text[dollar + 2 : end]
            out.append(values.get(name, f"$({name})"))
            at = end + 1
        elif follower == "$":
            out.append("$")
            at = dollar + 2
        else:
            out.append("$")
            at = dollar + 1
    out.append(text[at:])
    return "".join(out)
