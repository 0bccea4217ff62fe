"""Keys and certificates of a control plane.

Every identity is a client certificate: its common name is the user, its organisations are the
groups. A bed lives for hours, so certificates are valid for a week and never renewed.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=7)

_SKEW = dt.timedelta(minutes=5)
"""Certificates are valid from a little before now, for clocks that are set back."""


@dataclass(frozen=True)
class KeyPair:
    """The files of a certificate (or of a bare public key) and of its private key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in one folder.

    Attributes:
        certificate: file with the certificate that others verify against.
    """

    def __init__(self, folder: Path, name: str, now: dt.datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _subject(name, ())
        builder = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
        )
        self.certificate = folder / f"{name}.crt"
        _write(self.certificate, _pem(builder.sign(self._key, hashes.SHA256())))

    def issue_client(self, user: str, groups: Sequence[str] = (), *, name: str) -> KeyPair:
        """A certificate that makes its bearer `user`; `name` is that of the files."""
        return self._issue(_subject(user, groups), name, (), (ExtendedKeyUsageOID.CLIENT_AUTH,))

    def issue_server(self, hosts: Sequence[str], *, name: str, client: bool = False) -> KeyPair:
        """A serving certificate for names and addresses.

        `client` lets the server present it to its peers as well, as etcd does.
        """
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if client:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(_subject(name, ()), name, hosts, usages)

    def _issue(
        self,
        subject: x509.Name,
        name: str,
        hosts: Sequence[str],
        usages: Sequence[x509.ObjectIdentifier],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        pair = KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        _write(pair.certificate, _pem(builder.sign(self._key, hashes.SHA256())))
        _write_key(pair.key, key)
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(identifier, critical=False)
        )


def write_signing_keys(folder: Path, name: str) -> KeyPair:
    """The bare key pair that signs and verifies service-account tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / f"{name}.pub", folder / f"{name}.key")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(pair.certificate, public)
    _write_key(pair.key, key)
    return pair


def _subject(user: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, content, mode=0o600)


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.touch(mode=mode)
    path.write_bytes(content)
