"""Flags, files, and what is said when they are wrong."""

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from disaggpair.cli import main
from disaggpair_bed.fakes.upstream import decoding, prefilling, scripted_engine
from disaggpair_bed.load.routers import free_ports
from disaggpair_bed.routing import eventually
from disaggpair_router import configpage
from disaggpair_router.__main__ import main as module_main
from disaggpair_router.command import add_arguments, configuration, run
from disaggpair_router.config import RouterConfig
from disaggpair_router.flags import FlagParser

ROOT = Path(__file__).parents[3]
P, D = "http://10.0.0.4:8000", "http://10.0.0.7:8000"
URLS = ["--prefill-url", P, "--decode-url", D]
STATIC = {"endpoints": {"kind": "static", "prefill": [P], "decode": [D]}}


def parsed(*argv: str) -> argparse.Namespace:
    parser = FlagParser(prog="disaggpair router")
    add_arguments(parser)
    return parser.parse_args(argv)


def configured(*argv: str) -> RouterConfig:
    return configuration(parsed(*argv))


def written(path: Path, fields: Any) -> str:
    file = path / "router.json"
    file.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return str(file)


def test_urls_are_enough() -> None:
    config = configured(*URLS, "--decode-url", "http://[fd00::7]:8000")
    assert config.endpoints.model_dump() == {
        "kind": "static",
        "prefill": (P,),
        "decode": (D, "http://[fd00::7]:8000"),
    }
    assert (config.host, config.port, config.metrics_port) == ("", 8000, 9090)


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {
            "host": "0.0.0.0",
            "port": 1,
            "kv": {"handle_ttl_s": 100},
            "endpoints": {"kind": "pods", "namespace": "n", "pair": "p"},
        },
    )
    config = configured("--config", file, "--host", "127.0.0.9", "--metrics-port", "0")
    assert (config.host, config.port, config.metrics_port) == ("127.0.0.9", 1, 0)
    assert config.kv.handle_ttl_s == 100
    assert config.endpoints.kind == "pods"


@pytest.mark.parametrize(
    ("version", "in_stream"),
    [("0.32.0", False), ("0.33", True), ("v0.33.0", True), ("1.0.0", True), ("0.9.2", False)],
)
def test_the_engines_release_decides_how_a_handle_comes(version: str, in_stream: bool) -> None:
    assert configured(*URLS, "--engine-version", version).kv.handle_in_stream is in_stream


def test_switches_reach_the_configuration() -> None:
    flags = ["--one-way", "--verified-reads", "--fallback", "Refuse", "--prefill-timeout", "9"]
    config = configured(*URLS, *flags, "--handle-ttl", "20", "--decode-ttl", "60", "--port", "0")
    assert config.kv.bidirectional is False
    assert config.kv.verified_reads is True
    assert config.fallback == "Refuse"
    assert config.timeouts.prefill_s == 9
    assert (config.kv.handle_ttl_s, config.kv.decode_ttl_s) == (20, 60)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "endpoints is missing: give --config FILE, or --prefill-url and --decode-url."),
        (["--prefill-url", P], "--decode-url is missing: give at least one URL of each role."),
        (
            [*URLS, "--port", "70000"],
            "port is '70000': input should be less than or equal to 65535",
        ),
        (
            ["--prefill-url", "10.0.0.4:8000", "--decode-url", D],
            "endpoints.prefill: 10.0.0.4:8000 is not a base URL such as http://10.0.0.4:8000.",
        ),
        (
            ["--prefill-url", "http://a:x", "--decode-url", D],
            "endpoints.prefill: http://a:x is not a base URL",
        ),
        (
            ["--prefill-url", P, "--decode-url", D + "/v1"],
            f"endpoints.decode: {D}/v1 has a path, which the router adds itself: give {D}.",
        ),
        (
            ["--prefill-url", P, "--decode-url", P + "/"],
            f"endpoints: {P} is given twice: an engine has one role.",
        ),
        pytest.param(
            [*URLS, "--handle-ttl", "480"],
            "kv: handle_ttl_s is 480, but D drops the blocks after 480 s",
            id="h06",
        ),
        (
            [*URLS, "--tenant-header", "X-Tenant"],
            "tenants: header is X-Tenant, but trusted_proxies is empty: name the addresses",
        ),
        (
            [*URLS, "--tenant-header", "X Tenant"],
            "tenants.header: 'X Tenant' is not the name of a header.",
        ),
        (
            [*URLS, "--tenant-header", "authorization"],
            "tenants.header: authorization has another meaning: choose another header.",
        ),
        (
            [*URLS, "--tenant-header", "X-Session-ID", "--trusted-proxy", "10.0.0.1"],
            "tenants.header is X-Session-ID, which is one of conversation_headers.",
        ),
        (
            [*URLS, "--trusted-proxy", "10.0.0.1/33"],
            "tenants.trusted_proxies: '10.0.0.1/33' is not a CIDR block such as 10.0.0.0/8.",
        ),
        (
            [*URLS, "--trusted-proxy", "::/0"],
            "tenants.trusted_proxies: ::/0 is every address: anybody could be any tenant.",
        ),
        ([*URLS, "--port", "abc"], "port is 'abc': input should be a valid integer"),
        ([*URLS, "--handle-ttl", "long"], "kv.handle_ttl_s is 'long': input should be a valid n"),
        (
            [*URLS, "--fallback", "refuse"],
            "fallback is 'refuse': input should be 'SingleEngine' or 'Refuse'.",
        ),
        ([*URLS, "--log-format", "xml"], "--log-format is 'xml': it must be human or json."),
        ([*URLS, "--engine-version", "latest"], "--engine-version is latest: it must be a vLLM"),
        (["--config", "absent.json"], "--config is absent.json, which cannot be read: No such"),
    ],
)
def test_a_wrong_flag_is_one_sentence_and_status_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(parsed(*argv)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"disaggpair router: {sentence}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--nope"], "--nope is not known: disaggpair router --help lists what is."),
        (["--port"], "argument --port: expected one argument."),
    ],
)
@pytest.mark.parametrize("command", [["disaggpair"], ["disaggpair_router"]])
def test_a_flag_that_is_not_known_is_one_sentence_and_status_2(
    command: list[str],
    argv: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["python", *argv])
    with pytest.raises(SystemExit) as ended:
        main(["router", *argv]) if command == ["disaggpair"] else module_main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"disaggpair router: {sentence}\n"


def test_the_configuration_is_printed_with_every_field(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--trusted-proxy", "10.0.0.1/8", "--log-format", "JSON", "--print-config"]
    assert run(parsed(*URLS, *flags)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == set(RouterConfig.model_fields)
    assert printed["tenants"]["trusted_proxies"] == ["10.0.0.0/8"]
    assert printed["timeouts"]["prefill_s"] == 120
    assert RouterConfig.model_validate(printed) == configured(*URLS, *flags)


def test_the_page_of_the_file_is_that_of_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (ROOT / configpage.PAGE).read_text() == configpage.page()
    monkeypatch.chdir(tmp_path)
    configpage.PAGE.parent.mkdir()
    assert configpage.main(["--check"]) == 1
    assert "run make router-config" in capsys.readouterr().err
    assert configpage.main(["--write"]) == 0
    assert configpage.main(["--check"]) == 0


def test_every_field_of_the_file_has_a_meaning() -> None:
    rows = [line for line in configpage.page().splitlines() if line.startswith("| `")]
    assert len(rows) > 60
    assert [row for row in rows if row.endswith("|  |")] == []


def test_a_wrong_key_in_the_environment_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAGGPAIR_CONVERSATION_KEY", "secret")
    assert run(parsed(*URLS)) == 2
    assert capsys.readouterr().err == (
        "disaggpair router: DISAGGPAIR_CONVERSATION_KEY has 6 characters: "
        "it must have at least 16.\n"
    )


def test_tenants_come_from_flags(tmp_path: Path) -> None:
    proxies = ["--trusted-proxy", "10.0.0.1/8", "--trusted-proxy", "fd00::1"]
    config = configured(*URLS, "--tenants", str(tmp_path), "--tenant-header", "X-Tenant", *proxies)
    assert config.tenants.model_dump() == {
        "directory": str(tmp_path),
        "header": "X-Tenant",
        "trusted_proxies": ("10.0.0.0/8", "fd00::1/128"),
        "reload_s": 5.0,
    }


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ("{", "which is not valid JSON"),
        ("[]", "which must hold a JSON object."),
        ({"kv": 3, "endpoints": {"kind": "pods", "namespace": "n", "pair": "p"}}, "kv is 3: "),
        ({"endpoints": {"kind": "pods", "pair": "p"}}, "endpoints.namespace is missing."),
        ({**STATIC, "prot": 1}, "prot is 1: extra inputs are not permitted."),
        (
            {**STATIC, "limits": {"max_body_bytes": 4096, "max_request_bytes": 4095}},
            "limits: max_request_bytes is 4095, but one body may have max_body_bytes, which is "
            "4096: it must be at least that.",
        ),
        ({**STATIC, "way": {}}, "way is set: it needs kv.leases, and kv.bidirectional true"),
        (
            {**STATIC, "way": {}, "kv": {"leases": {}, "bidirectional": False}},
            "way is set: it needs kv.leases, and kv.bidirectional true",
        ),
        (
            {**STATIC, "way": {"header": "X-Session-Id"}, "kv": {"leases": {}}},
            "way.header is X-Session-Id, which names the conversation or the tenant.",
        ),
        (
            {**STATIC, "way": {"header": "Authorization"}, "kv": {"leases": {}}},
            "way.header: Authorization has another meaning: choose another header.",
        ),
        (
            {**STATIC, "conversation_headers": ["x-chat", "Authorization"]},
            "conversation_headers: Authorization has another meaning: choose another header.",
        ),
        (
            {**STATIC, "conversation_headers": ["x chat"]},
            "conversation_headers: 'x chat' is not the name of a header.",
        ),
    ],
)
def test_a_wrong_file_is_one_sentence(
    tmp_path: Path, fields: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(parsed("--config", written(tmp_path, fields))) == 2
    assert sentence in capsys.readouterr().err


async def test_a_process_serves_and_ends_in_order_at_sigterm() -> None:
    gate = asyncio.Event()

    async def slow(recorded: Any) -> Any:
        await gate.wait()
        return await decoding()(recorded)

    async with scripted_engine(prefilling()) as prefill, scripted_engine(slow) as decode:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "disaggpair_router", "--host", "127.0.0.1", "--port", "0"),
            *("--prefill-url", prefill.url, "--decode-url", decode.url),
            *("--metrics-port", "0", "--engine-version", "0.33.0", "--log-format", "json"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        assert process.stdout is not None
        url = f"http://127.0.0.1:{await _port(process.stdout)}"
        async with aiohttp.ClientSession() as http:

            async def is_ready() -> bool:
                async with http.get(f"{url}/readyz") as response:
                    return response.status == 200

            await eventually(is_ready)
            body = {"messages": [{"role": "user", "content": "a"}], "stream": True}
            turn = asyncio.create_task(_read(http, url, body))
            await eventually(lambda: decode.requests)
            process.send_signal(signal.SIGTERM)
            # The port closes while the turn goes on.
            await eventually(lambda: _refuses(url))
            gate.set()
            assert (await turn).endswith(b"data: [DONE]\n\n")
        out = (await process.stdout.read()).decode()
        assert await process.wait() == 0
        turns = [json.loads(text) for text in out.splitlines() if '"way"' in text]
        assert [(one["way"], one["kv"], one["status"]) for one in turns] == [("FULL", "MISS", 200)]


async def _port(out: asyncio.StreamReader) -> int:
    """The port that a router says it listens on; lines of its engines may come before."""
    while line := await out.readline():
        said = json.loads(line).get("message", "")
        if "listens on port" in said:
            return int(said.split()[-1])
    raise AssertionError("it does not listen")


async def _read(http: aiohttp.ClientSession, url: str, body: Any) -> bytes:
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        return await response.read()


async def _refuses(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return True
    writer.close()
    await writer.wait_closed()
    return False


async def test_tenants_that_cannot_be_read_are_one_sentence_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "team-a").write_text("sk-secret")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "disaggpair_router", "--tenants", str(tmp_path)),
        *("--host", "127.0.0.1", "--port", "0", "--metrics-port", "0", *URLS),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode() == (
        f"disaggpair router: {tmp_path}/team-a, line 1 is not the SHA-256 digest of a key "
        "in hexadecimal (64 characters).\n"
    )


@pytest.mark.parametrize("what", ["the API", "metrics", "the debug page"])
@pytest.mark.parametrize("workers", [1, 3])
async def test_a_port_in_use_is_one_sentence_and_status_1(
    tmp_path: Path, what: str, workers: int
) -> None:
    free = free_ports(3)
    names = {"the API": "port", "metrics": "metrics_port", "the debug page": "debug_port"}
    fields: dict[str, Any] = {
        **STATIC,
        "host": "127.0.0.1",
        "workers": workers,
        "kv": {"bidirectional": False},
        **dict(zip(names.values(), free, strict=True)),
    }
    async with scripted_engine(prefilling()) as engine:
        port = fields[names[what]] = int(engine.url.rpartition(":")[2])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "disaggpair_router", "--config", written(tmp_path, fields)),
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        _, err = await process.communicate()
    assert process.returncode == 1
    assert err.decode() == (
        f"disaggpair router: cannot listen for {what} on 127.0.0.1, port {port}: "
        "Address already in use.\n"
    )
