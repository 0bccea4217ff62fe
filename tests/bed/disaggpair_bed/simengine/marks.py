"""What a chat asks for in its last message, besides an answer: a call of a tool, thinking."""

import re
from collections.abc import Mapping
from typing import Any, Final

_CALL: Final = re.compile(r"#call(?: (?P<name>[\w.-]+))?")
_THINK: Final = re.compile(r"#think (?P<count>\d{1,6})")


def tool(body: Mapping[str, Any]) -> str | None:
    """Name of the function that is called: it must be, or the last message asks for it."""
    names = [str((one.get("function") or {}).get("name")) for one in body.get("tools") or ()]
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        return str((choice.get("function") or {}).get("name"))
    if not names or choice == "none":
        return None
    if choice == "required":
        return names[0]
    if (found := _CALL.search(_last(body))) is None:
        return None
    return found["name"] if found["name"] in names else names[0]


def thinking(body: Mapping[str, Any]) -> int | None:
    """Tokens of thinking that the last message asks for; None if it does not."""
    found = _THINK.search(_last(body))
    return int(found["count"]) if found else None


def _last(body: Mapping[str, Any]) -> str:
    """The text of the last message, if it is the user's."""
    messages = body.get("messages") or ()
    last = messages[-1] if messages else None
    if not isinstance(last, Mapping) or last.get("role") != "user":
        return ""
    content = last.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(str(part or "") for part in parts)
    return str(content)
