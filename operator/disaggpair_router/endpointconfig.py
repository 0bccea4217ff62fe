"""What can be set about where the engines are."""

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from disaggpair_router.configkinds import Part, Port


class StaticEndpoints(Part):
    """Engines at fixed URLs: outside a cluster, in benchmarks and in tests."""

    kind: Literal["static"] = "static"
    """Engines at fixed URLs."""
    prefill: tuple[str, ...] = Field(min_length=1)
    """Base URLs of the prefill engines, such as `http://10.0.0.4:8000`, without a path."""
    decode: tuple[str, ...] = Field(min_length=1)
    """Base URLs of the decode engines."""

    @field_validator("prefill", "decode")
    @classmethod
    def _are_base_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            _check_base_url(url)
        return urls

    @model_validator(mode="after")
    def _engines_are_distinct(self) -> Self:
        urls = [url.rstrip("/") for url in (*self.prefill, *self.decode)]
        twice = next((url for url in urls if urls.count(url) > 1), None)
        if twice:
            raise ValueError(f"{twice} is given twice: an engine has one role")
        return self


class PodEndpoints(Part):
    """Engines found by watching the pods of one pair by label."""

    kind: Literal["pods"] = "pods"
    """The pods of a pair."""
    namespace: str = Field(min_length=1)
    """Of the pods."""
    pair: str = Field(min_length=1)
    """Value of the pair label on the engines' pods."""
    port: Port = 8000
    """The engines' HTTP port, the same on every pod."""


def _check_base_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - the property raises for a port that is no number
    except ValueError:
        parts = urlsplit("")
    plain = not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(f"{url} is not a base URL such as http://10.0.0.4:8000")
    if parts.path.strip("/"):
        raise ValueError(
            f"{url} has a path, which the router adds itself: give {parts.scheme}://{parts.netloc}"
        )
