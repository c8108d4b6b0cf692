"""TLS of a listener, from the files that its stanza names."""

import datetime
import ssl
from collections.abc import Iterator

from logger.posix_disk import PosixDisk
from logger.whole_files import read_whole
from qmgr.configuration import ListenerConfig
from qmgr.daemon import certificates
from qmgr.daemon.face import ServiceFace
from qmgr.errors import IniError

CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)  # in the middle of a handshake
OF_ANOTHER = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")  # the last: it is of another kind


def context_of(service: ServiceFace, config: ListenerConfig) -> ssl.SSLContext | None:
    """As `server_context`; the error log hears of a certificate whose time is over, which stops no start."""
    context = server_context(config)
    for text in outdated(config, service.clock.wall_us()):
        service.say("AMQ9633", text=text)
    return context


def server_context(config: ListenerConfig) -> ssl.SSLContext | None:
    """What the listener wraps its sockets with; None without TLS. Raises IniError that names the file."""
    if config.tls_certificate is None:
        return None
    assert config.tls_key is not None, "they go together"
    _look_at_certificates(config, "TLSCertificate", config.tls_certificate)
    _look_at_key(config, config.tls_key)
    if config.tls_client_ca is not None:
        _look_at_certificates(config, "TLSClientCA", config.tls_client_ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key, password=lambda: "")
        if config.tls_client_ca is not None:
            context.load_verify_locations(config.tls_client_ca)
            needed = config.authentication == ("EXTERNAL",)
            context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    except ssl.SSLError as exc:
        if exc.reason in OF_ANOTHER:
            why = f"it is not the key of the certificate in {config.tls_certificate}; name the one that was made for it"
        else:
            why = f"it is damaged, or it or the certificate is of a kind that is not taken here ({_words(exc)})"
        raise _unusable(config, "TLSKey", config.tls_key, why) from exc
    except OSError as exc:  # it was there a moment ago
        raise _unusable(config, "TLSKey", config.tls_key, str(exc)) from exc
    return context


def _look_at_certificates(config: ListenerConfig, attribute: str, path: str) -> None:
    text = _read(config, attribute, path)
    if b"CERTIFICATE-----" not in text:
        way = f"`openssl x509 -inform der -in {path}` shows one that is DER as PEM"
        raise _unusable(config, attribute, path, f"it has no certificate in PEM (-----BEGIN CERTIFICATE-----); {way}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except OSError as exc:  # an SSLError is one
        why = f"it is damaged ({_words(exc)}); have it made again, or copied"
        raise _unusable(config, attribute, path, why) from exc


def _look_at_key(config: ListenerConfig, path: str) -> None:
    text = _read(config, "TLSKey", path)
    if b"PRIVATE KEY-----" not in text:
        way = f"`openssl pkey -inform der -in {path}` shows one that is DER as PEM"
        raise _unusable(config, "TLSKey", path, f"it has no key in PEM (-----BEGIN PRIVATE KEY-----); {way}")
    if b"ENCRYPTED" in text:
        way = f"`openssl pkey -in {path}` shows it without"
        raise _unusable(config, "TLSKey", path, f"it has a passphrase, which nobody is asked for at a start; {way}")


def _read(config: ListenerConfig, attribute: str, path: str) -> bytes:
    try:
        return read_whole(PosixDisk(), path)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise _unusable(config, attribute, path, "there is no such file") from exc
    except PermissionError as exc:
        why = "this user may not read it, or not look into a directory on the way; change owner or mode (chown, chmod)"
        raise _unusable(config, attribute, path, why) from exc
    except OSError as exc:
        raise _unusable(config, attribute, path, exc.strerror or str(exc)) from exc


def _unusable(config: ListenerConfig, attribute: str, path: str, why: str) -> IniError:
    return IniError(f"AMQ9255E: listener {config.name!r} can't use {path} ({attribute}) for TLS: {why}")


def _words(exc: OSError) -> str:
    """What OpenSSL says, without where in its code."""
    reason = getattr(exc, "reason", None)
    return reason.replace("_", " ").lower() if reason else "OpenSSL can't read it"


def outdated(config: ListenerConfig, now_us: int) -> Iterator[str]:
    """A sentence for each file whose certificates are expired or not valid yet.

    Of TLSCertificate only the first one counts, since those of authorities behind it may be old ones that nobody needs;
    of TLSClientCA one that is valid is enough.
    """
    now = datetime.datetime.fromtimestamp(now_us / 1e6, datetime.UTC)
    for attribute, path, whom in (
        ("TLSCertificate", config.tls_certificate, "clients refuse it"),
        ("TLSClientCA", config.tls_client_ca, "no client's is taken"),
    ):
        spans = certificates.spans(_read(config, attribute, path)) if path is not None else []
        spans = spans[:1] if attribute == "TLSCertificate" else spans
        if spans and not any(first <= now <= last for first, last in spans):
            first, last = spans[0]
            good = (
                f"is not good before {first:%Y-%m-%d %H:%M:%S}"
                if now < first
                else f"was good until {last:%Y-%m-%d %H:%M:%S}"
            )
            which = f"the certificate in {path} ({attribute} of listener {config.name!r})"
            yield f"{which} {good} UTC: {whom}; have it renewed"


def say_why(service: ServiceFace, config: ListenerConfig, exc: OSError) -> None:
    """Tell the error log why a handshake failed, unless the client closed the connection, as one that only looks."""
    if not isinstance(exc, CLOSED):
        service.say("AMQ9213", text=f"TLS with a client of listener {config.name!r} failed: {exc}")


def certified(connection: ssl.SSLSocket | ssl.SSLObject) -> str | None:
    """The common name in the client's certificate, which an authority of the listener has signed; None without one."""
    return common_name(connection.getpeercert())


def common_name(certificate: object) -> str | None:
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None
