"""The command lines of the programs (pure).

What is unusual here and why:
- etcd never calls fsync: a bed starts empty each time.
- etcd has an authority of its own. Its clients are trusted with everything, and the identities
  of the cluster's authority (a node's, for one) must not reach it.
- The API server publishes no endpoints for itself: EndpointSlices refuse loopback addresses.
- The controller manager has the cluster's authority as root of all pods' trust, signs nothing,
  and uses one account per controller: RBAC refuses single controllers otherwise.
"""

from dataclasses import dataclass
from pathlib import Path

from disaggpair_bed.controlplane.addresses import LOOPBACK
from disaggpair_bed.controlplane.pki import KeyPair

SERVICE_RANGE = "10.96.0.0/16"
"""Cluster addresses of Services. No proxy serves them: programs on a bed dial pods."""

API_HOSTS = (
    LOOPBACK,
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""Names and addresses for which the API server's certificate holds."""

_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class Files:
    """Where the keys, certificates and kubeconfigs of the programs are."""

    authority: Path
    etcd_authority: Path
    etcd: KeyPair
    etcd_client: KeyPair
    serving: KeyPair
    kubelet_client: KeyPair
    service_accounts: KeyPair
    controller_manager: Path
    """Kubeconfig of system:kube-controller-manager."""
    scheduler: Path
    """Kubeconfig of system:kube-scheduler."""


def etcd(files: Files, data: Path, client_port: int, peer_port: int) -> list[str]:
    """Arguments of etcd: one member, TLS with client certificates on both ports."""
    client, peer = f"https://{LOOPBACK}:{client_port}", f"https://{LOOPBACK}:{peer_port}"
    return [
        "--name=bed",
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=bed={peer}",
        f"--cert-file={files.etcd.certificate}",
        f"--key-file={files.etcd.key}",
        f"--trusted-ca-file={files.etcd_authority}",
        "--client-cert-auth",
        f"--peer-cert-file={files.etcd.certificate}",
        f"--peer-key-file={files.etcd.key}",
        f"--peer-trusted-ca-file={files.etcd_authority}",
        "--peer-client-cert-auth",
        "--log-level=warn",
    ]


def apiserver(files: Files, etcd_port: int, port: int) -> list[str]:
    """Arguments of kube-apiserver; it verifies the kubelets it asks for logs."""
    return [
        f"--etcd-servers=https://{LOOPBACK}:{etcd_port}",
        f"--etcd-cafile={files.etcd_authority}",
        f"--etcd-certfile={files.etcd_client.certificate}",
        f"--etcd-keyfile={files.etcd_client.key}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={files.serving.certificate}",
        f"--tls-private-key-file={files.serving.key}",
        f"--client-ca-file={files.authority}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-certificate-authority={files.authority}",
        f"--kubelet-client-certificate={files.kubelet_client.certificate}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={files.service_accounts.certificate}",
        f"--service-account-signing-key-file={files.service_accounts.key}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
    ]


def controller_manager(files: Files, port: int) -> list[str]:
    """Arguments of kube-controller-manager, node lifecycle included."""
    return [
        *_component(files, files.controller_manager, port),
        f"--root-ca-file={files.authority}",
        f"--service-account-private-key-file={files.service_accounts.key}",
        "--use-service-account-credentials=true",
        "--controllers=*",
    ]


def scheduler(files: Files, port: int) -> list[str]:
    """Arguments of kube-scheduler."""
    return _component(files, files.scheduler, port)


def _component(files: Files, kubeconfig: Path, port: int) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={files.serving.certificate}",
        f"--tls-private-key-file={files.serving.key}",
        "--leader-elect=false",
    ]
