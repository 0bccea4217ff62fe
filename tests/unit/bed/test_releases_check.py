"""What is said of a release that differs, on a wheel that the tests write."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from disaggpair_bed import cli
from disaggpair_bed.releases import facts, signature, snapshot
from disaggpair_bed.releases.nixl_facts import PULL_WORKER
from disaggpair_bed.releases.relied import CLASSES, FACTS, Relied
from disaggpair_bed.releases.surface import Class, find_class
from disaggpair_bed.releases.wheel import Modules, Wheel, WheelError

METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.34.0\n"
MakeWheel = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    """Write a wheel of vLLM with some modules."""

    def make(modules: Mapping[str, str]) -> Path:
        path = tmp_path / "vllm-0.34.0-cp38-abi3-manylinux_2_28_x86_64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("vllm-0.34.0.dist-info/METADATA", METADATA)
            for name, text in modules.items():
                archive.writestr(f"{name.replace('.', '/')}.py", text)
        return path

    return make


def modules_of(make_wheel: MakeWheel, **texts: str) -> Modules:
    return Modules(Wheel(make_wheel({f"vllm.{name}": text for name, text in texts.items()})))


def found_in(make_wheel: MakeWheel, text: str, name: str = "C") -> Class:
    found = find_class(modules_of(make_wheel, m=text), f"vllm.m:{name}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "()",
        "(self, request)",
        "(self, a, b=..., *rest, c, d=..., **more) -> tuple[int | None, bool]",
        "(self, a, /, b, *, c)",
        "(a, /)",
        "(*, c)",
    ],
)
def test_a_signature_is_written_as_it_was_read(text: str) -> None:
    assert str(signature.parse(text)) == text


def test_a_live_function_has_the_signature_of_its_text() -> None:
    def function(self, a, b=1, *rest, c, d=2, **more): ...  # type: ignore[no-untyped-def]  # vLLM's have none either

    text = "(self, a, b=..., *rest, c, d=..., **more)"
    assert signature.of_callable(function) == signature.parse(text)


@pytest.mark.parametrize(
    ("here", "call", "goes_on"),
    [
        ("(self, a, b=...)", "(self, a)", True),
        ("(self, a, *rest, **more)", "(self, a)", True),
        ("(self, a=...)", "(self, a)", True),
        ("(self, a, b)", "(self, a)", False),
        ("(self, a)", "(self, a=...)", False),
        ("(self, b)", "(self, a)", False),
        ("(self, *, a)", "(self, a)", False),
        ("(self)", "(self, a)", False),
    ],
)
def test_a_call_goes_on_working_with_more_that_has_defaults(
    here: str, call: str, goes_on: bool
) -> None:
    assert signature.parse(here).takes(signature.parse(call)) is goes_on


def test_an_inherited_method_is_found_through_imports(make_wheel: MakeWheel) -> None:
    modules = modules_of(
        make_wheel,
        base="class Base:\n    def f(self, a): ...\n    def g(self): ...\n",
        again="from vllm.base import Base as Renamed\n",
        m="from vllm.again import Renamed\nclass C(Renamed):\n    def g(self, b=1): ...\n",
    )
    found = find_class(modules, "vllm.m:C")
    assert found is not None
    assert str(found.signature("f")) == "(self, a)"
    assert str(found.signature("g")) == "(self, b=...)"


def test_classes_that_import_each_other_are_searched_once(make_wheel: MakeWheel) -> None:
    modules = modules_of(make_wheel, a="from vllm.b import C\n", b="from vllm.a import C\n")
    assert find_class(modules, "vllm.a:C") is None


def test_attributes_are_assignments_fields_and_properties(make_wheel: MakeWheel) -> None:
    text = """
class C:
    field: int = 0
    constant = 1

    def __init__(self):
        self.plain = 1
        self.typed: set[str] = set()
        self.one, self.other = 1, 2
        local.foreign = 3

    @property
    def read(self) -> str: ...
"""
    assert found_in(make_wheel, text).attributes() == {
        "field": "int",
        "constant": None,
        "plain": None,
        "typed": "set[str]",
        "one": None,
        "other": None,
        "read": "str",
    }


def test_the_last_of_several_overloads_is_the_method(make_wheel: MakeWheel) -> None:
    text = "class C:\n    @overload\n    def f(self, a): ...\n    def f(self, a, b=1): ...\n"
    assert str(found_in(make_wheel, text).signature("f")) == "(self, a, b=...)"


def release(**changed: object) -> dict[str, object]:
    """A snapshot in which everything is as declared."""
    classes: dict[str, dict[str, object]] = {}
    for relied in CLASSES:
        methods = {**relied.calls, **relied.overrides}
        reads = {name: f"({', '.join(['self', *some])})" for name, some in relied.reads.items()}
        classes[relied.name] = {
            "methods": {**methods, **reads},
            "attributes": dict(relied.attributes),
            "members": [],
        }
    everything = {fact.__name__: True for fact in FACTS}
    return {"vllm": "0.34.0", "classes": classes, "facts": everything, **changed}


def lacking(relied: Relied, **changed: object) -> list[str]:
    taken = release()
    classes = taken["classes"]
    assert isinstance(classes, dict)
    classes[relied.name] = {**classes[relied.name], **changed}
    return snapshot.lacks(taken)


POOL = next(relied for relied in CLASSES if relied.name == facts.POOL)
MANAGER = next(relied for relied in CLASSES if relied.name == facts.MANAGER)
WORKER = next(relied for relied in CLASSES if relied.name == PULL_WORKER)


def test_nothing_is_said_of_a_release_that_is_as_declared() -> None:
    assert snapshot.lacks(release()) == []


def test_a_class_that_is_gone_is_named() -> None:
    assert f"{POOL.name} is not there." in snapshot.lacks(release(classes={}))


def test_a_method_that_is_gone_is_named() -> None:
    methods = {name: text for name, text in POOL.calls.items() if name != "touch"}
    assert lacking(POOL, methods=methods) == ["BlockPool.touch is not there."]


def test_a_call_that_no_longer_works_is_named() -> None:
    assert lacking(POOL, methods={**POOL.calls, "touch": "(self, blocks, owner)"}) == [
        "BlockPool.touch is (self, blocks, owner): the connector calls it as (self, blocks)."
    ]


def test_an_overridden_method_may_not_even_gain_a_default() -> None:
    changed = "(self, metadata, step=...)"
    methods = {**WORKER.calls, **WORKER.overrides, "start_load_kv": changed}
    assert lacking(WORKER, methods=methods) == [
        f"NixlPullConnectorWorker.start_load_kv is {changed}: "
        "the connector overrides it as (self, metadata)."
    ]


def test_another_result_is_named() -> None:
    changed = "(self, transfers) -> set[str]"
    methods = {**WORKER.calls, **WORKER.overrides, "_pop_done_transfers": changed}
    assert lacking(WORKER, methods=methods) == [
        f"NixlPullConnectorWorker._pop_done_transfers is {changed}: "
        "the connector relies on what it returned, tuple[set[str], set[str]]."
    ]


def test_a_parameter_that_is_read_and_gone_is_named() -> None:
    taken = ", ".join(["self", *MANAGER.reads["allocate_slots"][:-1], "more"])
    methods = {**MANAGER.calls, "reset_prefix_cache": "(self)", "allocate_slots": f"({taken})"}
    assert lacking(MANAGER, methods=methods) == [
        f"KVCacheManager.allocate_slots is ({taken}): the connector reads reserved_blocks."
    ]


def test_an_attribute_that_is_gone_or_of_another_type_is_named() -> None:
    attributes = {**WORKER.attributes, "compat_hash": "bytes"}
    del attributes["xfer_stats"]
    assert lacking(WORKER, attributes=attributes) == [
        "NixlPullConnectorWorker.compat_hash is bytes, and the connector relies on str | None.",
        "NixlPullConnectorWorker.xfer_stats is not there.",
    ]


def test_a_fact_that_is_no_longer_found_is_said_in_its_own_words() -> None:
    found = {fact.__name__: fact is not facts.counts_references for fact in FACTS}
    (sentence,) = snapshot.lacks(release(facts=found))
    assert sentence == f"No longer found: {facts.counts_references.__doc__}"


def test_a_new_name_of_vllm_that_a_class_of_ours_has_too_is_named() -> None:
    name = WORKER.name
    taken = release(classes={name: {"members": ["__init__", "_suffix", "start_load_kv"]}})
    ours = {name: {"__init__", "_suffix", "start_load_kv", "_overdue"}}
    assert snapshot.hides(taken, ours) == [
        "NixlPullConnectorWorker has _suffix, which a class of the connector defines for itself."
    ]


def test_a_check_of_another_vllm_says_what_moved_and_fails(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel({"vllm.v1.core.block_pool": "class BlockPool:\n    def touch(self, b): ..."})
    assert cli.main(["releases", "check", "--wheel", str(wheel)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"{facts.MANAGER} is not there." in said
    assert "BlockPool.touch is (self, b): the connector calls it as (self, blocks)." in said
    assert said[-1].startswith("vLLM 0.34.0: ")


def test_a_file_that_is_no_wheel_of_vllm_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other-1.0.dist-info/METADATA", "Version: 1.0\n")
    assert cli.main(["releases", "check", "--wheel", str(path)]) == 1
    assert "is no wheel of vLLM" in capsys.readouterr().err
    path.write_text("text")
    with pytest.raises(WheelError, match="is no wheel"):
        Wheel(path).text("vllm/__init__.py")
