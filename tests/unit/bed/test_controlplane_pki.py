import base64
import datetime as dt
import ipaddress
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import verification
from cryptography.x509.oid import NameOID

from disaggpair_bed.controlplane.identities import write_identities
from disaggpair_bed.controlplane.nodes import write_node_identity
from disaggpair_bed.controlplane.pki import LIFETIME, Authority, KeyPair, write_signing_keys

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def policy(authority: Path, at: dt.datetime = NOW) -> verification.PolicyBuilder:
    store = verification.Store([load(authority)])
    return verification.PolicyBuilder().store(store).time(at)


def names(certificate: Path, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(entry.value) for entry in load(certificate).subject.get_attributes_for_oid(kind)]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", "ca", NOW)


@pytest.mark.parametrize(
    "host",
    [x509.IPAddress(ipaddress.ip_address("127.11.0.1")), x509.DNSName("node-1")],
)
def test_a_serving_certificate_holds_for_its_names_and_addresses(
    authority: Authority, host: verification.Subject
) -> None:
    pair = authority.issue_server(["127.11.0.1", "node-1"], name="serving")
    policy(authority.certificate).build_server_verifier(host).verify(load(pair.certificate), [])


def test_a_serving_certificate_does_not_hold_for_another_name(authority: Authority) -> None:
    pair = authority.issue_server(["node-1"], name="serving")
    verifier = policy(authority.certificate).build_server_verifier(x509.DNSName("node-2"))
    with pytest.raises(verification.VerificationError):
        verifier.verify(load(pair.certificate), [])


def test_certificates_of_two_authorities_are_not_mixed_up(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "ca", NOW)
    pair = other.issue_server(["node-1"], name="serving")
    verifier = policy(authority.certificate).build_server_verifier(x509.DNSName("node-1"))
    with pytest.raises(verification.VerificationError):
        verifier.verify(load(pair.certificate), [])


def test_certificates_hold_for_their_lifetime_only(authority: Authority) -> None:
    pair = authority.issue_server(["node-1"], name="serving")
    late = NOW + LIFETIME + dt.timedelta(seconds=1)
    verifier = policy(authority.certificate, late).build_server_verifier(x509.DNSName("node-1"))
    with pytest.raises(verification.VerificationError):
        verifier.verify(load(pair.certificate), [])


def test_user_and_groups_are_in_a_client_certificate(authority: Authority) -> None:
    pair = authority.issue_client("system:node:n", ["system:nodes", "extra"], name="node-n")
    assert names(pair.certificate, NameOID.COMMON_NAME) == ["system:node:n"]
    assert names(pair.certificate, NameOID.ORGANIZATION_NAME) == ["system:nodes", "extra"]


def test_a_key_belongs_to_its_certificate_and_to_its_owner(authority: Authority) -> None:
    pair = authority.issue_client("u", name="u")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    assert key.public_key() == load(pair.certificate).public_key()
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600


def test_signing_keys_are_a_pair(tmp_path: Path) -> None:
    pair = write_signing_keys(tmp_path, "service-accounts")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    public = serialization.load_pem_public_key(pair.certificate.read_bytes())
    assert key.public_key() == public


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def user_certificate(kubeconfig: Path, scratch: Path) -> Path:
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    scratch.write_bytes(base64.b64decode(user["client-certificate-data"]))
    return scratch


def test_each_kubeconfig_is_one_identity(run_dir: Path, tmp_path: Path) -> None:
    identities = write_identities(run_dir, "https://127.0.0.1:6443", NOW)
    node = write_node_identity(run_dir, "n", "https://127.0.0.1:6443", identities.authority)
    files = identities.files
    expected = {
        identities.kubeconfig: ("kubernetes-admin", ["system:masters"]),
        files.controller_manager: ("system:kube-controller-manager", []),
        files.scheduler: ("system:kube-scheduler", []),
        node: ("system:node:n", ["system:nodes"]),
    }
    for kubeconfig, (user, groups) in expected.items():
        certificate = user_certificate(kubeconfig, tmp_path / "user.crt")
        assert names(certificate, NameOID.COMMON_NAME) == [user]
        assert names(certificate, NameOID.ORGANIZATION_NAME) == groups
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600


def test_no_identity_of_the_cluster_reaches_etcd(run_dir: Path) -> None:
    """etcd trusts each certificate of its authority with all data."""
    identities = write_identities(run_dir, "https://127.0.0.1:6443", NOW)
    files = identities.files

    def verify(pair: KeyPair) -> None:
        verifier = policy(files.etcd_authority).build_client_verifier()
        verifier.verify(load(pair.certificate), [])

    with pytest.raises(verification.VerificationError):
        verify(identities.admin)
