"""Answer questions about vLLM with vLLM's own code: one JSON object a line, in and out.

Run by the interpreter of the engines. A question has one member: `kv_transfer_config` (text),
`arguments` (list after `vllm serve`), `parameters` (dotted name of a callable), or
`get_connector_class` (text of a KV-transfer configuration). An answer has `value` or `fault`.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser


def kv_transfer_config(text: str) -> Any:
    """The configuration as vLLM holds it."""
    return KVTransferConfig(**json.loads(text))


def arguments(argv: list[str]) -> Any:
    """The namespace that `vllm serve` gets."""
    parsed = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(argv)
    validate_parsed_serve_args(parsed)
    return vars(parsed)


def parameters(dotted: str) -> list[str]:
    """Names of the parameters of module:qualified.name."""
    module, _, name = dotted.partition(":")
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return list(inspect.signature(target).parameters)


def get_connector_class(text: str) -> list[str]:
    """Names of the class that vLLM's factory loads, and of its ancestors."""
    found = KVConnectorFactory.get_connector_class(kv_transfer_config(text))
    return [ancestor.__name__ for ancestor in found.__mro__]


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    asked.__name__: asked
    for asked in (kv_transfer_config, arguments, parameters, get_connector_class)
}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """A value, or what the code under question said against it."""
    ((kind, asked),) = question.items()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return {"value": QUESTIONS[kind](asked)}
    except SystemExit:  # argparse has written its reason
        return {"fault": said.getvalue()}
    except Exception as error:
        return {"fault": f"{type(error).__name__}: {error}"}


def plain(value: Any) -> Any:
    """What JSON has no form for: a dataclass as its fields, anything else as its text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)


def main() -> None:
    """Answer until the input ends."""
    # Whatever vLLM prints goes to the log; answers have the pipe for themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line)), default=plain), file=answers, flush=True)


if __name__ == "__main__":
    main()
