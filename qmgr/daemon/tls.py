"""TLS of a listener, from the files that its stanza names."""

import ssl

from logger.disk import PosixDisk
from qmgr.configuration import ListenerConfig
from qmgr.errors import IniError
from qmgr.session import ServiceFace

CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)  # in the middle of a handshake


def server_context(config: ListenerConfig) -> ssl.SSLContext | None:
    """What the listener wraps its sockets with; None without TLS. Raises IniError that names the file."""
    if config.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
        if config.tls_client_ca is not None:
            context.load_verify_locations(config.tls_client_ca)
            needed = config.authentication == ("EXTERNAL",)
            context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as exc:
        named = list(filter(None, [config.tls_certificate, config.tls_key, config.tls_client_ca]))
        files = ", ".join([file for file in named if not PosixDisk().exists(file)] or named)
        raise IniError(f"AMQ9255E: listener {config.name!r} can't use {files} for TLS: {exc}") from exc
    return context


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
