from pathlib import Path
from typing import Any

import pytest

from disaggpair_bed.node.config import load_config, parse_config
from disaggpair_bed.node.errors import ConfigError

BASE = Path("/bed")


def node(**changes: Any) -> dict[str, Any]:
    return {
        "name": "n1",
        "kubeconfig": "n1.kubeconfig",
        "address": "127.11.0.1",
        "podPrefix": "127.11.0",
        "zone": "us-east-2a",
        "instanceType": "p5en.48xlarge",
        **changes,
    }


def bed(*nodes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"runDir": "run", "nodes": list(nodes or (node(),)), **changes}


def test_paths_are_taken_from_the_folder_of_the_file() -> None:
    config = parse_config(bed(images="images.yaml"), "c.yaml", BASE)
    assert config.run_dir == BASE / "run"
    assert config.images == BASE / "images.yaml"
    assert config.nodes[0].kubeconfig == BASE / "n1.kubeconfig"


def test_absolute_paths_stay() -> None:
    assert parse_config(bed(runDir="/elsewhere"), "c.yaml", BASE).run_dir == Path("/elsewhere")


def test_a_real_back_off_is_the_default() -> None:
    config = parse_config(bed(), "c.yaml", BASE)
    assert (config.backoff_s, config.refresh_s) == (10.0, 60.0)


def test_the_region_is_the_zone_without_its_letter() -> None:
    assert parse_config(bed(), "c.yaml", BASE).nodes[0].region == "us-east-2"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "c.yaml must be a map"),
        ({"runDir": "run", "nodes": []}, r"c.yaml: nodes is \[\]: it must be a list"),
        ({"nodes": [node()]}, "c.yaml.runDir is missing: it must be a path"),
        (bed(speed=1), "c.yaml.speed is unknown; allowed: backoffSeconds"),
        (bed(backoffSeconds=0), "backoffSeconds is 0: it must be a number above 0"),
        (bed(node(gpus="8")), r"nodes\[0\].gpus is '8': it must be a whole number"),
        (bed(node(gpus=-1)), r"nodes\[0\].gpus is -1"),
        (bed(node(hollow="yes")), "hollow is 'yes': it must be true or false"),
        (bed(node(address="10.0.0.1")), "address is '10.0.0.1': it must be an address in 127"),
        (bed(node(podPrefix="10.0.0")), "podPrefix is '10.0.0': it must be two or three octets"),
        (bed(node(memory="2 TB")), r"nodes\[0\].memory: '2 TB' is not a quantity"),
        (bed(node(labels={"a": 1})), "labels is .*: it must be a map of strings"),
        (bed(node(servingCert="c")), "needs servingCert and servingKey together"),
        (bed(node(servingCert="c", servingKey="k")), "clientCA is missing"),
        (bed(node(), node(address="127.11.1.1")), "two nodes have the name 'n1'"),
        (bed(node(), node(name="n2")), "two nodes have the address '127.11.0.1'"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_value(raw: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(raw, "c.yaml", BASE)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as YAML"):
        load_config(tmp_path / "none.yaml")
