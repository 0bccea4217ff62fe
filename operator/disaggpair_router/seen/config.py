"""What can be set about what a router tells."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Tracing(BaseModel):
    """Traces of turns by OpenTelemetry; needs the extra `tracing` of the distribution."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    endpoint: str
    """URL of the collector's OTLP/HTTP receiver, such as `http://collector:4318`; without a path
    `/v1/traces` is added. Headers that it wants, such as a key, are taken from the environment
    (`OTEL_EXPORTER_OTLP_HEADERS`)."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of the turns that are recorded. A client that sends a `traceparent` decides for its
    own turn."""

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - the property raises for a port that is no number
        except ValueError:
            raise ValueError("endpoint is not a URL such as http://collector:4318") from None
        plain = not (parts.query or parts.fragment or parts.username)
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise ValueError("endpoint is not a URL such as http://collector:4318")
        return url
