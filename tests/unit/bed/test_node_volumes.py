import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from disaggpair_bed.node.api import Api
from disaggpair_bed.node.downward import Placement
from disaggpair_bed.node.errors import ApiError, MissingReference, SpecError
from disaggpair_bed.node.spec import Pod, parse_pod
from disaggpair_bed.node.volumes import Volumes, fetch_sources

PLACE = Placement("n1", "127.11.0.2", "127.11.0.1", {}, "127.0.0.1", "6443")


class Server:
    """Answers reads from a map and hands out tokens that are valid for 100 seconds."""

    def __init__(self, **objects: Mapping[str, Any] | int) -> None:
        self.objects = objects
        self.now = 1000.0
        self.requests: list[Mapping[str, Any]] = []

    async def get(self, path: str) -> Mapping[str, Any]:
        found = self.objects.get(path.rpartition("/")[2], 404)
        if isinstance(found, int):
            raise ApiError(found, "refused")
        return found

    async def create(self, path: str, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        assert path == "/api/v1/namespaces/ns/serviceaccounts/sa/token"
        self.requests.append(obj["spec"])
        expires = datetime.fromtimestamp(self.now + 100, UTC).isoformat()
        token = f"token-{len(self.requests)}"
        return {"status": {"token": token, "expirationTimestamp": expires}}


def pod(*volumes: dict[str, Any]) -> Pod:
    return parse_pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u-1"},
            "spec": {
                "serviceAccountName": "sa",
                "containers": [{"name": "c", "image": "i"}],
                "volumes": list(volumes),
            },
        }
    )


def made(server: Server, tmp_path: Path) -> Volumes:
    api = cast(Api, server)
    return Volumes(api, tmp_path / "volumes", tmp_path / "memory", now=lambda: server.now)


async def test_a_token_is_bound_to_its_pod_and_renewed_before_it_expires(tmp_path: Path) -> None:
    server = Server()
    token = {"serviceAccountToken": {"path": "token", "audience": "a", "expirationSeconds": 600}}
    volume = {"name": "t", "projected": {"sources": [token]}}
    volumes, owner = made(server, tmp_path), pod(volume)
    file = volumes.path(volume) / "token"
    await volumes.prepare(owner, PLACE)
    assert server.requests == [
        {
            "audiences": ["a"],
            "expirationSeconds": 600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1"},
        }
    ]
    server.now += 79
    await volumes.refresh(owner, PLACE)
    assert file.read_text() == "token-1"
    server.now += 2
    await volumes.refresh(owner, PLACE)
    assert file.read_text() == "token-2"


async def test_memory_volumes_lie_on_the_tmpfs_and_all_go_with_the_pod(tmp_path: Path) -> None:
    memory: dict[str, Any] = {"name": "m", "emptyDir": {"medium": "Memory"}}
    disk: dict[str, Any] = {"name": "d", "emptyDir": {}}
    volumes = made(Server(), tmp_path)
    await volumes.prepare(pod(memory, disk), PLACE)
    assert volumes.path(memory) == tmp_path / "memory" / "m"
    assert volumes.path(disk) == tmp_path / "volumes" / "d"
    assert volumes.path(disk).is_dir()
    await volumes.remove()
    assert os.listdir(tmp_path) == []


async def test_a_host_path_is_checked_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "host" / "new"
    volumes = made(Server(), tmp_path)
    for kind, complaint in (("Directory", "is not a directory"), ("", "does not exist")):
        volume = {"name": "h", "hostPath": {"path": str(path), "type": kind}}
        with pytest.raises(SpecError, match=f"volume 'h': hostPath .* {complaint}"):
            await volumes.prepare(pod(volume), PLACE)
    volume = {"name": "h", "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}
    await volumes.prepare(pod(volume), PLACE)
    await volumes.remove()
    assert path.is_dir()


async def test_an_unsupported_volume_is_refused_by_name(tmp_path: Path) -> None:
    volume = {"name": "v", "nfs": {"server": "s", "path": "/"}}
    with pytest.raises(SpecError, match="volume 'v': nfs is not supported by process nodes"):
        await made(Server(), tmp_path).prepare(pod(volume), PLACE)


async def test_a_missing_object_is_named_with_its_volume(tmp_path: Path) -> None:
    volume = {"name": "v", "configMap": {"name": "cm"}}
    with pytest.raises(MissingReference, match="volume 'v': configmap 'cm' not found"):
        await made(Server(), tmp_path).prepare(pod(volume), PLACE)


async def test_a_refusal_counts_as_not_there_yet_and_an_outage_does_not() -> None:
    wanted = [("Secret", "s")]
    with pytest.raises(MissingReference, match="secret 's' may not be read yet"):
        await fetch_sources(cast(Api, Server(s=403)), "ns", wanted, patience_s=0)
    with pytest.raises(ApiError):
        await fetch_sources(cast(Api, Server(s=500)), "ns", wanted)


async def test_a_node_that_the_authorizer_does_not_know_yet_asks_again() -> None:
    class Late(Server):
        refusals = 2

        async def get(self, path: str) -> Mapping[str, Any]:
            if self.refusals:
                self.refusals -= 1
                raise ApiError(403, "no relationship found")
            return await super().get(path)

    server = Late(s={"data": {"k": "dg=="}})
    sources = await fetch_sources(cast(Api, server), "ns", [("Secret", "s")], patience_s=0)
    assert sources.data("Secret", "s") == {"k": b"v"}
