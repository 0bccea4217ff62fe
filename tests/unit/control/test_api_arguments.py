"""Which arguments and variables belong to the operator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggpair_operator.api.arguments import OWNED_FLAGS, owned_arguments, owned_variables

FREE = (
    "--max-model-len",
    "--data-parallel-size-local=2",
    "--data-parallel-rank",
    "--decode-context-parallel-size",
    "--kv-cache-dtype",
    "--kv-transfer-configs",
    "--model-loader-extra-config={}",
    "--config-format",
    "--enable-expert-parallel",
    "--no-enable-log-requests",
    "--hf-overrides={}",
    "--hosts",
    "--served-model-names",
    "--dtype=bfloat16",
    "-O3",
    "-dcp",
    "8192",
    "{}",
    "",
    "-",
    "--",
    "tp",
)


@given(st.sampled_from(OWNED_FLAGS), st.data())
def test_every_beginning_of_an_owned_flag_is_owned(flag: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(1, len(flag)))
    text = "".join(data.draw(st.sampled_from("-_")) if c == "-" else c for c in flag[:end])
    tail = data.draw(st.sampled_from(("", "=", "=1", ".key=1", " 1", "=\n1", "\t")))
    assert owned_arguments([f"--{text}{tail}"]) == [f"--{text}{tail}"]


@given(st.sampled_from(OWNED_FLAGS), st.characters(categories=["L", "N"]))
def test_a_flag_that_only_begins_like_an_owned_one_is_free(flag: str, letter: str) -> None:
    assert owned_arguments([f"--{flag}{letter}"]) == []


@pytest.mark.parametrize("text", FREE)
def test_other_arguments_are_free(text: str) -> None:
    assert owned_arguments([text]) == []


@pytest.mark.parametrize("text", ["-tp", "--tp", "-tp=4", "-dp 2", "-pp", "-t"])
def test_short_flags_are_owned(text: str) -> None:
    assert owned_arguments([text]) == [text]


def test_only_the_owned_ones_are_told() -> None:
    assert owned_arguments(["--seed=1", "--tp", "4", "--uds=/x"]) == ["--tp", "--uds=/x"]


def test_variables_of_the_transfer_are_owned() -> None:
    names = ["VLLM_NIXL_SIDE_CHANNEL_HOST", "FI_PROVIDER", "POD_IP", "FI_LOG_LEVEL", "VLLM_NIXL"]
    assert owned_variables(names) == names[:3]
