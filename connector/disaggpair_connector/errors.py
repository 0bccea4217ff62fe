"""Why an engine does not start with this connector.

ConnectorError
├── UnsupportedEngineError   the installed vLLM or NIXL is none that this connector was tried with
└── ConfigError              the configuration holds something that would not do what it says

Each is raised at start and ends the engine with a non-zero status. The message is one sentence
for the person who wrote the configuration or chose the image.
"""


class ConnectorError(Exception):
    """The engine must not start; the message says why."""


class UnsupportedEngineError(ConnectorError):
    """vLLM or NIXL is missing, or of a release outside the table."""


class ConfigError(ConnectorError):
    """A value is wrong, or has no effect in this release of vLLM."""
