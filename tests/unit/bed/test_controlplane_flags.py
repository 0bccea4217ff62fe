from pathlib import Path

import pytest

from disaggpair_bed.controlplane import flags
from disaggpair_bed.controlplane.pki import KeyPair


def pair(name: str) -> KeyPair:
    return KeyPair(Path(f"/run/{name}.crt"), Path(f"/run/{name}.key"))


FILES = flags.Files(
    authority=Path("/run/ca.crt"),
    etcd_authority=Path("/run/etcd/ca.crt"),
    etcd=pair("etcd"),
    etcd_client=pair("etcd-client"),
    serving=pair("serving"),
    kubelet_client=pair("kubelet"),
    service_accounts=pair("accounts"),
    controller_manager=Path("/run/controller-manager.kubeconfig"),
    scheduler=Path("/run/scheduler.kubeconfig"),
)

ETCD = flags.etcd(FILES, Path("/run/data"), 1001, 1002)
APISERVER = flags.apiserver(FILES, 1001, 1003)
MANAGER = flags.controller_manager(FILES, 1004)
SCHEDULER = flags.scheduler(FILES, 1005)


def test_nothing_is_reachable_from_outside_the_machine() -> None:
    bound = [flag for flag in APISERVER + MANAGER + SCHEDULER if "bind-address" in flag]
    assert bound == ["--bind-address=127.0.0.1"] * 3
    urls = [flag.split("=", 1)[1] for flag in ETCD if "listen-" in flag]
    assert urls == ["https://127.0.0.1:1001", "https://127.0.0.1:1002"]


def test_etcd_asks_clients_and_peers_for_certificates_of_its_own_authority() -> None:
    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(ETCD)
    assert "--trusted-ca-file=/run/etcd/ca.crt" in ETCD
    assert "--peer-trusted-ca-file=/run/etcd/ca.crt" in ETCD


def test_nodes_are_bounded_by_authorizer_and_admission() -> None:
    assert "--authorization-mode=Node,RBAC" in APISERVER
    assert "--enable-admission-plugins=NodeRestriction" in APISERVER


def test_kubelets_are_verified_when_asked_for_logs() -> None:
    assert "--kubelet-certificate-authority=/run/ca.crt" in APISERVER
    assert "--kubelet-client-certificate=/run/kubelet.crt" in APISERVER


def test_a_lost_node_is_noticed_as_on_a_real_cluster() -> None:
    assert "--controllers=*" in MANAGER


@pytest.mark.parametrize("arguments", [ETCD, APISERVER, MANAGER, SCHEDULER])
def test_no_flag_is_given_twice(arguments: list[str]) -> None:
    names = [argument.split("=")[0] for argument in arguments]
    assert len(names) == len(set(names))
