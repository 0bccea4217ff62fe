"""What is found in the connector's sources, on sources that the tests write."""

from pathlib import Path

import pytest

from disaggpair_bed.releases import facts, uses
from disaggpair_bed.releases.uses import Use

ENGINE = """
from vllm.v1.half import Half
from vllm.logger import init_logger as make_logger
"""
DECODE = """
from disaggpair_connector import engine


class Ours(engine.Half):
    def __init__(self, config):
        super().__init__(config)
        self._own = 1

    def overridden(self, request):
        super().overridden(request)
        self._own += self.theirs + self.helper()
        engine.Half.shared(self)
        return request.status, request.client.address

    def helper(self):
        return 1
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "decode.py").write_text(DECODE)
    (tmp_path / "listener.py").write_text("def serve(request):\n    return request.headers\n")
    return tmp_path


def test_vllms_names_are_those_that_one_module_imports(package: Path) -> None:
    assert uses.imported(package) == {
        "Half": "vllm.v1.half:Half",
        "make_logger": "vllm.logger:init_logger",
    }


def test_a_subclass_defines_its_own_and_reaches_the_rest(package: Path) -> None:
    (found,) = uses.subclasses(package)
    assert found.base == "vllm.v1.half:Half"
    assert found.defines == {"__init__", "_own", "overridden", "helper"}
    assert found.reaches == {"__init__", "overridden", "theirs"}


def test_what_is_reached_is_found_by_class(package: Path) -> None:
    half = {Use("vllm.v1.half:Half", name) for name in ("__init__", "overridden", "theirs")}
    named = {Use("vllm.v1.half:Half", "shared")}
    request = {Use(facts.REQUEST, "status"), Use(facts.REQUEST, "client")}
    assert uses.uses(package) == half | named | request


def test_a_request_of_http_is_none_of_vllms(package: Path) -> None:
    assert Use(facts.REQUEST, "headers") not in uses.uses(package)


def test_every_name_in_the_sources_is_found(package: Path) -> None:
    assert {"theirs", "overridden", "request", "helper"} <= uses.identifiers(package)
