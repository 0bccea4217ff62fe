"""Log lines as JSON objects: one line per change, fields beside the message."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one JSON object; what was given as `extra` becomes its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for one record."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def set_up_logs(level: str) -> None:
    """Write lines of this level and above to standard error.

    kopf tells of each handler it calls and quotes objects at DEBUG and INFO, so it is heard from
    WARNING on, unless our level is DEBUG: then from INFO.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    others = logging.INFO if level == "DEBUG" else logging.WARNING
    for name in ("kopf", "asyncio", "aiohttp", "kubernetes"):
        logging.getLogger(name).setLevel(max(others, root.level))
