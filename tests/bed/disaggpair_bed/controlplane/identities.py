"""All keys, certificates and kubeconfigs of one control plane, written to its run folder."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.controlplane.addresses import LOOPBACK
from disaggpair_bed.controlplane.flags import API_HOSTS, Files
from disaggpair_bed.controlplane.kubeconfig import write_kubeconfig
from disaggpair_bed.controlplane.nodes import KUBELET_CLIENT
from disaggpair_bed.controlplane.pki import Authority, KeyPair, write_signing_keys

_ADMIN_GROUP = "system:masters"


@dataclass(frozen=True)
class Identities:
    """What was written.

    Attributes:
        authority: issues identities of the cluster.
        admin: certificate of the administrator.
        kubeconfig: kubeconfig of the administrator.
        files: what the programs' command lines name.
    """

    authority: Authority
    admin: KeyPair
    kubeconfig: Path
    files: Files


def write_identities(run_dir: Path, server: str, now: dt.datetime) -> Identities:
    """Write `pki/`, `admin.kubeconfig` and the programs' kubeconfigs."""
    pki = run_dir / "pki"
    authority = Authority(pki, "ca", now)
    etcd_authority = Authority(pki / "etcd", "ca", now)
    admin = authority.issue_client("kubernetes-admin", [_ADMIN_GROUP], name="admin")
    kubeconfig = run_dir / "admin.kubeconfig"
    write_kubeconfig(kubeconfig, server, authority.certificate, "kubernetes-admin", admin)

    def component(name: str) -> Path:
        user = f"system:kube-{name}"
        path = pki / f"{name}.kubeconfig"
        pair = authority.issue_client(user, name=name)
        write_kubeconfig(path, server, authority.certificate, user, pair)
        return path

    files = Files(
        authority=authority.certificate,
        etcd_authority=etcd_authority.certificate,
        etcd=etcd_authority.issue_server([LOOPBACK, "localhost"], name="etcd", client=True),
        etcd_client=etcd_authority.issue_client("kube-apiserver", name="apiserver"),
        serving=authority.issue_server(API_HOSTS, name="serving"),
        kubelet_client=authority.issue_client(KUBELET_CLIENT, name="kubelet-client"),
        service_accounts=write_signing_keys(pki, "service-accounts"),
        controller_manager=component("controller-manager"),
        scheduler=component("scheduler"),
    )
    return Identities(authority, admin, kubeconfig, files)
