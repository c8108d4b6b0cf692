"""What is wrong with the files of a listener's TLS is said with the file, its attribute, and what to do."""

import datetime
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from qmgr import sockets
from qmgr.configuration import ListenerConfig, Protocol
from qmgr.daemon import certificates, tls
from qmgr.errors import IniError
from tests.daemon.certificates import Authority

LONG_AGO, IN_2060 = (datetime.datetime(year, 3, 4, 5, 6, 7, tzinfo=datetime.UTC) for year in (2001, 2060))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def config(authority: Authority) -> ListenerConfig:
    certificate, key = authority.issue("localhost")
    return ListenerConfig(
        name="far",
        protocol=Protocol.QMGR,
        port=1,
        tls_certificate=certificate,
        tls_key=key,
        tls_client_ca=authority.path,
    )


def contents(config: ListenerConfig, attribute: str) -> tuple[Path, bytes]:
    path = Path(getattr(config, attribute))
    return path, path.read_bytes()


def remove(path: Path, before: bytes) -> None:
    path.unlink()


def make_directory(path: Path, before: bytes) -> None:
    path.unlink()
    path.mkdir()


def empty(path: Path, before: bytes) -> None:
    path.write_bytes(b"")


def as_der(path: Path, before: bytes) -> None:
    path.write_bytes(ssl.PEM_cert_to_DER_cert(before[: before.index(b"-----END CERTIFICATE-----") + 26].decode()))


def cut(path: Path, before: bytes) -> None:
    lines = before.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))


def with_passphrase(path: Path, before: bytes) -> None:
    key = load_pem_private_key(before, None)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def of_another(path: Path, before: bytes) -> None:
    path.write_bytes(Path(Authority(path.parent).issue("other")[1]).read_bytes())


def of_another_kind(path: Path, before: bytes) -> None:
    """RSA where the certificate has a curve, or the other way."""
    curve = isinstance(load_pem_private_key(before, None), ec.EllipticCurvePrivateKey)
    key = rsa.generate_private_key(65537, 2048) if curve else ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    "attribute, spoil, words",
    [
        *((each, remove, "there is no such file") for each in ("tls_certificate", "tls_key", "tls_client_ca")),
        ("tls_key", make_directory, "Is a directory"),
        ("tls_certificate", empty, "no certificate in PEM"),
        ("tls_certificate", as_der, "openssl x509 -inform der"),
        ("tls_client_ca", empty, "no certificate in PEM"),
        ("tls_key", empty, "no key in PEM"),
        ("tls_certificate", cut, "it is damaged"),
        ("tls_client_ca", cut, "it is damaged"),
        ("tls_key", cut, "it is damaged"),
        ("tls_key", with_passphrase, "it has a passphrase"),
        ("tls_key", of_another, "it is not the key of the certificate in "),
        ("tls_key", of_another_kind, "it is not the key of the certificate in "),
    ],
)
def test_a_file_that_is_not_good_is_named_with_its_attribute_and_what_to_do(
    config: ListenerConfig, attribute: str, spoil: Callable[[Path, bytes], None], words: str
) -> None:
    assert tls.server_context(config) is not None
    path, before = contents(config, attribute)
    spoil(path, before)
    with pytest.raises(IniError) as caught:
        tls.server_context(config)
    named = {"tls_certificate": "TLSCertificate", "tls_key": "TLSKey", "tls_client_ca": "TLSClientCA"}[attribute]
    text = str(caught.value)
    assert text.startswith(f"AMQ9255E: listener 'far' can't use {path} ({named}) for TLS: ") and words in text
    assert "Errno" not in text and "_ssl.c" not in text


def test_a_file_that_this_user_may_not_read(config: ListenerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(disk: object, path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(tls, "read_whole", denied)
    with pytest.raises(IniError, match="this user may not read it"):
        tls.server_context(config)


def test_the_times_of_certificates_are_those_that_others_read(authority: Authority) -> None:
    times: dict[str, dict[str, datetime.datetime]] = {
        "now": {},
        "old": {"not_after": LONG_AGO},
        "ever": {"not_before": IN_2060.replace(year=1950), "not_after": IN_2060},  # as some devices have it
        "far": {"not_after": IN_2060},
    }
    for name, of_time in times.items():
        pem = Path(authority.issue(name, **of_time)[0]).read_bytes()
        (first, *_), theirs = certificates.spans(pem), x509.load_pem_x509_certificate(pem)
        assert first == (theirs.not_valid_before_utc, theirs.not_valid_after_utc)
    both = Path(authority.path).read_bytes() + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + pem
    assert len(certificates.spans(both)) == 2


def test_a_certificate_whose_time_is_over_or_has_not_come_is_told(authority: Authority, config: ListenerConfig) -> None:
    now = int(datetime.datetime.now(datetime.UTC).timestamp() * 1e6)
    assert list(tls.outdated(config, now)) == []
    assert list(tls.outdated(ListenerConfig(name="near", protocol=Protocol.QMGR, port=1), now)) == []
    for of_time, words in (
        ({"not_after": LONG_AGO}, "was good until 2001-03-04 05:06:07 UTC: clients refuse it"),
        (
            {"not_before": IN_2060, "not_after": IN_2060},
            "is not good before 2060-03-04 05:06:07 UTC: clients refuse it",
        ),
    ):
        certificate, key = authority.issue("other", **of_time)
        (told,) = tls.outdated(attrs.evolve(config, tls_certificate=certificate, tls_key=key), now)
        assert certificate in told and words in told
    chain = Path(authority.path).with_name("chain.pem")
    files = authority.issue("old", not_after=LONG_AGO)[0], authority.issue("good")[0]
    chain.write_bytes(b"".join(Path(file).read_bytes() for file in files))
    assert list(tls.outdated(attrs.evolve(config, tls_client_ca=str(chain)), now)) == [], "one that is valid is enough"
    (told,) = tls.outdated(attrs.evolve(config, tls_certificate=str(chain)), now)
    assert "clients refuse it" in told, "only the first one counts"
    both = list(tls.outdated(config, int(IN_2060.replace(year=3500).timestamp() * 1e6)))
    assert ["clients refuse it" in both[0], "no client's is taken" in both[1]] == [True, True]


def test_a_certificate_with_several_common_names_says_nothing() -> None:
    one, other = ((("commonName", name),) for name in ("mia", "tom"))
    for subject, name in (((one,), "mia"), ((one, other), None), ((other, one), None), ((), None)):
        assert tls.common_name({"subject": subject}) == name


def test_row_75_a_reply_over_tls_may_take_any_time_as_long_as_it_is_read(authority: Authority, tmp_path: Path) -> None:
    """Not if nothing of it is. Python's `sendall` has one bound for all of it."""
    certificate, key = authority.issue("localhost")
    ours, theirs = sockets.pair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    known = ssl.create_default_context(cafile=authority.path)
    step, size = threading.Event(), 4_000_000
    with ThreadPoolExecutor(1) as threads:
        shown = threads.submit(sockets.with_tls, theirs, known, 30.0, "localhost")
        with sockets.with_tls(ours, context, 30.0) as server, shown.result() as client:
            sockets.limit_send(server, 2.0)
            sending = threads.submit(server.sendall, bytes(size))
            client.settimeout(30)
            for _ in range(32):  # longer than the bound
                left = size // 32
                while left:
                    left -= len(client.recv(left))
                step.wait(0.1)
            sending.result(30)
            with pytest.raises(TimeoutError):
                server.sendall(bytes(size))
