"""What is logged of a request that is no HTTP: that it came, and from where.

The server's own line shows the bytes at which it stumbled, and these may be an API key with a
line break in it.
"""

import logging

from aiohttp.http_exceptions import HttpProcessingError

logger = logging.getLogger(__name__)
"""For the HTTP server itself."""


def _without_bytes(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg = "a request from %s could not be read"
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.exc_info = None
    return True


logger.addFilter(_without_bytes)
