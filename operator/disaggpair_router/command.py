"""`disaggpair router`: flags, their errors, and the start of the process."""

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any, get_args

import orjson
from pydantic import ValidationError

from disaggpair_router.config import RouterConfig
from disaggpair_router.environment import Environment
from disaggpair_router.errors import ConfigError
from disaggpair_router.turnlog import LineFormatter, LogFormat

_STREAMS_HANDLES_SINCE = (0, 33)
_OK, _FAILED, _USAGE = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; a flag that is given wins over the file."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration as JSON")
    parser.add_argument(
        "--prefill-url", action="append", metavar="URL", help="a prefill engine; repeatable"
    )
    parser.add_argument(
        "--decode-url", action="append", metavar="URL", help="a decode engine; repeatable"
    )
    parser.add_argument("--host", help="address to bind (default: all interfaces)")
    parser.add_argument("--port", metavar="N", help="port of the API (default: 8000)")
    parser.add_argument(
        "--metrics-port", metavar="N", help="port of /metrics, 0 for none (default: 9090)"
    )
    parser.add_argument("--handle-ttl", metavar="S", help="seconds a handle is used (default: 450)")
    parser.add_argument(
        "--decode-ttl",
        metavar="S",
        help="seconds D keeps finished blocks, decoder_kv_blocks_ttl (default: 480)",
    )
    parser.add_argument(
        "--engine-version",
        metavar="V",
        help="the engines' vLLM release. From 0.33 on streams are relayed as they come; without "
        "this flag, and before 0.33, a client's stream begins with D's whole answer",
    )
    parser.add_argument(
        "--one-way", action="store_true", help="keep no handles: every turn is a first one"
    )
    parser.add_argument(
        "--verified-reads",
        action="store_true",
        default=None,
        help="the engines compare tokens before a read, so keep handles of every answer",
    )
    parser.add_argument(
        "--fallback",
        metavar="HOW",
        help="what happens while no pair is ready: SingleEngine (default) or Refuse",
    )
    parser.add_argument(
        "--tenants",
        metavar="DIR",
        help="digests of API keys, a file for each tenant; without it no key is asked for",
    )
    parser.add_argument(
        "--tenant-header", metavar="NAME", help="header in which a gateway names the tenant"
    )
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        metavar="CIDR",
        help="addresses of the gateway whose header counts; repeatable",
    )
    parser.add_argument("--prefill-timeout", metavar="S", help="limit of the P leg (default: 120)")
    parser.add_argument(
        "--log-format", default="human", metavar="FORM", help="of lines: human (default) or json"
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the configuration as JSON, with every field, and end",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; 2 when the configuration is wrong, 1 when a port cannot be opened."""
    try:
        config = configuration(args)
        style = _log_format(args.log_format)
        if args.print_config:
            sys.stdout.write(config.model_dump_json(indent=2) + "\n")
            return _OK
        environment = Environment.of(os.environ)
    except ConfigError as error:
        return _refused(error)
    import uvloop

    from disaggpair_router.server import serve
    from disaggpair_router.workers import Worker, run_workers

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter(style))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # No line shows them, and every record would look them up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False

    def work(worker: Worker | None = None) -> int:
        if worker is not None:
            handler.setFormatter(LineFormatter(style, worker.number))
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(config, environment, worker))
        except (ConfigError, OSError) as error:
            return _refused(error, is_said=worker is not None and not worker.speaks_first())
        return _OK

    return work() if config.workers == 1 else run_workers(config.workers, work)


def _refused(error: ConfigError | OSError, *, is_said: bool = False) -> int:
    if not is_said:
        print(f"disaggpair router: {str(error).rstrip('.')}.", file=sys.stderr)
    return _USAGE if isinstance(error, ConfigError) else _FAILED


def _log_format(text: str) -> LogFormat:
    for known in get_args(LogFormat):
        if text.lower() == known:
            form: LogFormat = known
            return form
    raise ConfigError(f"--log-format is {text!a}: it must be human or json.")


def configuration(args: argparse.Namespace) -> RouterConfig:
    """The configuration from file and flags; ConfigError when it is wrong."""
    fields = _read(args.config) if args.config else {}
    if bool(args.prefill_url) != bool(args.decode_url):
        missing = "--decode-url" if args.prefill_url else "--prefill-url"
        raise ConfigError(f"{missing} is missing: give at least one URL of each role.")
    if args.prefill_url:
        fields["endpoints"] = {
            "kind": "static",
            "prefill": args.prefill_url,
            "decode": args.decode_url,
        }
    if "endpoints" not in fields:
        raise ConfigError(
            "endpoints is missing: give --config FILE, or --prefill-url and --decode-url."
        )
    _set(fields, "host", args.host)
    _set(fields, "port", args.port)
    _set(fields, "metrics_port", args.metrics_port)
    _set(fields, "fallback", args.fallback)
    kv = _section(fields, "kv")
    _set(kv, "handle_ttl_s", args.handle_ttl)
    _set(kv, "decode_ttl_s", args.decode_ttl)
    _set(kv, "verified_reads", args.verified_reads)
    _set(kv, "bidirectional", False if args.one_way else None)
    if args.engine_version is not None:
        kv["handle_in_stream"] = _release(args.engine_version) >= _STREAMS_HANDLES_SINCE
    _set(_section(fields, "timeouts"), "prefill_s", args.prefill_timeout)
    tenants = _section(fields, "tenants")
    _set(tenants, "directory", args.tenants)
    _set(tenants, "header", args.tenant_header)
    _set(tenants, "trusted_proxies", args.trusted_proxy)
    try:
        return RouterConfig.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        fields = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--config is {path}, which cannot be read: {error.strerror}.") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"--config is {path}, which is not valid JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"--config is {path}, which must hold a JSON object.")
    return fields


def _section(fields: dict[str, Any], name: str) -> dict[str, Any]:
    section = fields.setdefault(name, {})
    return section if isinstance(section, dict) else {}


def _set(fields: dict[str, Any], name: str, value: object) -> None:
    if value is not None:
        fields[name] = value


def _release(version: str) -> tuple[int, int]:
    parts = version.removeprefix("v").split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        raise ConfigError(
            f"--engine-version is {version}: it must be a vLLM release such as 0.33.0."
        ) from None


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ("static", "pods"))
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{field}: {reason}." if field else f"{reason}."
    if first["type"] == "missing":
        return f"{field} is missing."
    return f"{field} is {first['input']!r}: {reason[0].lower()}{reason[1:]}."
