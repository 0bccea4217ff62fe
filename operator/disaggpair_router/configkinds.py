"""Kinds of values that several parts of the router's configuration have."""

import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Port = Annotated[int, Field(ge=1, le=65_535)]

TAKEN_HEADERS: Final = ("authorization", "x-api-key", "x-request-id", "traceparent", "tracestate")
"""Headers that mean something else to the router, in lower case."""

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Part(BaseModel):
    """Base of every part of the configuration: frozen, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def checked_header(name: str) -> str:
    """A header's name as it came; ValueError when it is none, or has another meaning."""
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!a} is not the name of a header")
    if name.lower() in TAKEN_HEADERS:
        raise ValueError(f"{name} has another meaning: choose another header")
    return name
