"""How a pair's engines are varied, and the end of all processes of one."""

import subprocess
from collections.abc import Iterator

import pytest

from disaggpair_bed.cpu import image
from disaggpair_bed.cpu.options import PairOptions, RoleOptions, kv_transfer_config
from disaggpair_bed.cpu.usage import kill_session, session_members, usage


@pytest.fixture
def session() -> Iterator[subprocess.Popen[bytes]]:
    """A leader and one child of its, which says when both run."""
    program = "sleep 60 & echo ready; wait"
    leader = subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    assert leader.stdout.readline() == b"ready\n"
    yield leader
    kill_session(leader.pid)
    leader.wait()
    leader.stdout.close()


def test_a_session_is_ended_with_what_its_leader_left(session: subprocess.Popen[bytes]) -> None:
    session.kill()
    session.wait()
    (orphan,) = session_members(session.pid)
    assert orphan != session.pid
    kill_session(session.pid)
    assert session_members(session.pid) == []


def test_each_process_of_a_session_is_measured(session: subprocess.Popen[bytes]) -> None:
    leader, child = usage(session.pid)
    assert (leader.pid, leader.name) == (session.pid, "sh")
    assert child.pid > leader.pid
    assert min(leader.cpu_s, child.cpu_s) >= 0
    assert min(leader.memory_bytes, child.memory_bytes) > 0


def test_a_session_that_is_gone_has_no_members() -> None:
    ended = subprocess.Popen(["true"], start_new_session=True)
    ended.wait()
    assert usage(ended.pid) == []


def test_vllms_own_connector_is_named_without_a_module() -> None:
    config = kv_transfer_config("prefill", connector="Nixl")
    assert config["kv_connector"] == "NixlConnector"
    assert "kv_connector_module_path" not in config


@pytest.mark.parametrize(
    ("role", "connector", "policy"),
    [
        ("prefill", "DisaggPair", "recompute"),
        ("decode", "DisaggPair", "fail"),
        ("prefill", "Nixl", "fail"),
    ],
)
def test_only_p_of_ours_recomputes_by_default(role: str, connector: str, policy: str) -> None:
    config = kv_transfer_config(role, connector=connector)  # type: ignore[arg-type]  # a parameter of the test
    assert config["kv_load_failure_policy"] == policy
    chosen = kv_transfer_config(role, connector=connector, policy="fail")  # type: ignore[arg-type]  # a parameter of the test
    assert chosen["kv_load_failure_policy"] == "fail"


def test_extra_keys_are_laid_over_the_usual_ones() -> None:
    extra = kv_transfer_config("decode", decoder_kv_blocks_ttl=5)["kv_connector_extra_config"]
    assert extra["decoder_kv_blocks_ttl"] == 5
    assert extra["bidirectional_kv_xfer"] is True


def test_each_engine_has_its_own_options() -> None:
    options = PairOptions(decode=RoleOptions(args=("--num-gpu-blocks-override", "140")))
    assert options.of("prefill").args == ("--no-enable-prefix-caching",)
    assert options.of("decode").args == ("--num-gpu-blocks-override", "140")


def test_engines_can_spin_as_they_do_by_themselves() -> None:
    assert "engine_plugins" not in image.engine_environment(calm=False)["PYTHONPATH"]
