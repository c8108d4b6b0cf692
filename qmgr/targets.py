"""Where a daemon is, and how to reach it: a queue manager of this machine by its name, any other by a URL."""

import ssl
import sys
import threading
from urllib.parse import unquote, urlsplit

import attrs

from logger.clock import SystemClock
from logger.posix_disk import Path, PosixDisk
from qmgr import locations, sasl, sockets
from qmgr.errors import OWNER_ADVICE, Mistake, NotAuthorized, Reason, Unavailable, quoted
from qmgr.locations import Location
from qmgr.objects import check_name
from qmgr.sockets import Socket

POLL_S = 0.02


def program() -> str:
    """What this program is called, for operators."""
    return sys.argv[0].rsplit("/", 1)[-1][:60] if sys.argv and sys.argv[0] else "python"


def application_name(application: str) -> str:
    """What operators see of this client. Raises Mistake."""
    if application and not isinstance(application, str):
        raise Mistake(f"application is the name that operators see, a text, not {quoted(application)}")
    return application or program()


@attrs.frozen
class Identity:
    """Who we are to a queue manager on another machine, and whom we believe that we speak to."""

    user: str = ""
    password: str = attrs.field(default="", repr=False)
    ca: str = ""  # PEM files
    certificate: str = ""
    key: str = ""


@attrs.frozen
class Local:
    """A queue manager of this machine, by its Unix socket."""

    location: Location

    @property
    def name(self) -> str:
        return self.location.name

    @property
    def hint(self) -> str:
        return "its error log may say why, such as that it has no file descriptors left"

    @property
    def if_silent(self) -> str:
        return f"its process is stopped, or its disk hangs: let it go on, or end it with endmqm -p {self.name}"

    def open(self, seconds: float) -> Socket:
        try:
            try:
                return sockets.connect_unix(self.location.socket, seconds)
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                raise self._not_served() from None
        except PermissionError as exc:
            raise self._denied(exc) from exc
        except OSError as exc:
            if sockets.is_timeout(exc):  # as many wait already as the system lets wait
                text = f"queue manager {self.name!r} does not answer (it has accepted nobody for {seconds:g} seconds)"
                raise Unavailable(f"{text}; {self.if_silent}", name=self.name) from exc
            raise Unavailable(f"queue manager {self.name!r} can't be reached: {exc}", name=self.name) from exc

    def _denied(self, exc: PermissionError) -> NotAuthorized:
        what = exc.filename or self.location.socket  # a socket's error names none
        text = f"this user may not connect to queue manager {self.name!r}: it may not use {what}"
        return NotAuthorized(f"{text}; {OWNER_ADVICE}, or connect over TCP (a listener of qm.ini)", name=self.name)

    def _not_served(self) -> Unavailable:
        from qmgr.missing import unknown  # and what it needs, which a client that finds its daemon does not

        disk = PosixDisk()
        if not disk.exists(self.location.ini):
            return unknown(disk, self.location)
        holder = locations.running(self.location, disk)
        if holder is not None:
            return Unavailable(
                f"queue manager {self.name!r} is run by {holder}, which serves no clients, or not yet; if it is a "
                f"daemon that starts, try again in a moment, else end it there and start it with strmqm {self.name}",
                name=self.name,
            )
        return Unavailable(
            f"queue manager {self.name!r} is not running; start it with strmqm {self.name}", name=self.name
        )

    def proof(self) -> tuple[str, sasl.Client | None]:
        return "NONE", None

    def await_end(self) -> None:
        disk, clock, never = PosixDisk(), SystemClock(), threading.Event()
        try:
            holder = locations.running(self.location, disk)
            while holder is not None and locations.running(self.location, disk) == holder:
                clock.wait(never, POLL_S)
        except OSError as exc:  # this process has no descriptors left, say
            text = f"queue manager {self.name!r} is ending; whether it has ended can't be seen ({exc.strerror})"
            raise Unavailable(text, reason=Reason.Q_MGR_STOPPING, name=self.name) from exc


PORT_ADVICE = "or it is the port of a listener for STOMP or HTTP"


@attrs.frozen
class Remote:
    """A queue manager on any machine, over TCP."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    identity: Identity

    @property
    def hint(self) -> str:
        if self.tls is None:
            return f"this port may speak TLS: use qmgrs://; {PORT_ADVICE}"
        if self.identity.certificate:
            return "the certificate was perhaps not accepted"
        return f"it may ask for a certificate: name certificate and key; {PORT_ADVICE}"

    @property
    def if_silent(self) -> str:
        return "its process, or its machine, is stopped or has too much to do: look there"

    def open(self, seconds: float) -> Socket:
        place = f"{self.host}:{self.port}"
        try:
            sock = sockets.connect_tcp(self.host, self.port, seconds)
        except OSError as exc:
            text = f"nobody listens at {place} for queue manager {self.name!r} ({exc})"
            if sockets.is_name_error(exc):
                text = f"queue manager {self.name!r} is to be at {place}, and where that is nobody knows ({exc})"
            raise Unavailable(text, name=self.name) from exc
        if self.tls is None:
            return sock
        try:
            return sockets.with_tls(sock, self.tls, seconds, self.host)
        except OSError as exc:  # an SSLError is one
            sockets.close(sock)
            if sockets.is_timeout(exc):
                text = f"queue manager {self.name!r} does not answer (no TLS with it within {seconds:g} seconds)"
                raise Unavailable(f"{text}; {self.if_silent}", name=self.name) from exc
            text = f"no TLS with queue manager {self.name!r} at {place}: {exc}; {_tls_advice(exc)}"
            raise Unavailable(text, name=self.name) from exc

    def proof(self) -> tuple[str, sasl.Client | None]:
        """A password is never sent: SCRAM shows that we know it. Without one a certificate speaks for us."""
        user = self.identity.user
        if user:
            return sasl.SCRAM, sasl.Client(sasl.SCRAM, user, self.identity.password, PosixDisk().entropy)
        if self.identity.certificate:
            return sasl.EXTERNAL, sasl.Client(sasl.EXTERNAL, "", "", PosixDisk().entropy)
        return "NONE", None

    def await_end(self) -> None:
        """The connection was closed: more can't be seen from here."""


ENCODE = (
    "it has no host or port that can be read; in a user or password letters and digits stand as they are, and all "
    "else as %2F for /, say (urllib.parse.quote)"
)


def find(name_or_url: str, data_path: Path | None, identity: Identity) -> Local | Remote:
    """The queue manager of that name on this machine, or the one that the URL names. Raises NameError_, Mistake."""
    if not isinstance(name_or_url, str) or "://" not in name_or_url:
        return Local(locations.find(name_or_url, data_path))
    secret = "@" in name_or_url  # then what Python says of the URL may have the password, or a part of it, in it
    try:
        url = urlsplit(name_or_url)
        if "@" in f"{url.path}?{url.query}#{url.fragment}":
            raise _bad_url(name_or_url, ENCODE)
        host, port = url.hostname, url.port
    except ValueError as exc:
        raise _bad_url(name_or_url, ENCODE if secret else str(exc)) from None
    if url.scheme not in ("qmgr", "qmgrs"):
        raise _bad_url(name_or_url, "its scheme is not qmgr or qmgrs")
    if not host or port is None:
        raise _bad_url(name_or_url, "it has no host or no port")
    try:
        host.encode("idna")  # as the resolver is going to
    except UnicodeError:
        raise _bad_url(name_or_url, f"{quoted(host)} can't be the name of a host") from None
    name = url.path.strip("/")
    if not name:
        raise _bad_url(name_or_url, "the name of the queue manager is missing behind the port")
    if url.query or url.fragment:
        raise _bad_url(name_or_url, "something is behind the name of the queue manager")
    if url.scheme == "qmgr" and (identity.ca or identity.certificate or identity.key):
        raise _bad_url(name_or_url, "ca, certificate and key are for TLS, and it would go without")
    check_name(name, "queue manager", Reason.Q_MGR_NAME_ERROR)
    if url.username:
        user, password = unquote(url.username), unquote(url.password or "")
        identity = attrs.evolve(identity, user=user, password=password)
    for what, said in (("user", identity.user), ("password", identity.password)):
        if said and not _is_utf8(said):
            raise Mistake(f"the {what} is text, of which UTF-8 has each character")  # a password is never shown
    if identity.user and not identity.password:
        raise Mistake(f"user {identity.user!r} has no password: give it too, as password= or in the URL")
    if identity.password and not identity.user:
        raise Mistake("there is a password and no user: give it too, as user= or in the URL")
    if identity.key and not identity.certificate:
        raise Mistake("there is a key and no certificate: give it too, as certificate=")
    return Remote(name, host, port, _context(identity) if url.scheme == "qmgrs" else None, identity)


def _is_utf8(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(text.encode())
    except UnicodeEncodeError:
        return False


def _tls_advice(exc: OSError) -> str:
    """What to do where a handshake has failed."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return "ca= names a file with who signs it"
    return f"where the listener has no certificate use qmgr://, {PORT_ADVICE}"


def _bad_url(url: str, why: str) -> Mistake:
    scheme, _, rest = url.partition("://")
    shown = f"{scheme}://{rest.rpartition('@')[2]}"  # without a password
    return Mistake(f"{quoted(shown)} can't be connected to: {why}; write qmgr://host:port/QM1, or qmgrs:// for TLS")


def _context(identity: Identity) -> ssl.SSLContext:
    """Whom we believe and who we are. Raises Mistake for a file that can't be used."""
    try:
        context = ssl.create_default_context(cafile=identity.ca or None)
        if identity.certificate:
            context.load_cert_chain(identity.certificate, identity.key or None)
        return context
    except (OSError, TypeError, ValueError) as exc:  # the last two: what is no path
        files = ", ".join(f"{file}" for file in (identity.ca, identity.certificate, identity.key) if file)
        raise Mistake(f"the TLS files {files} can't be used: {exc}") from exc
