"""The machine's sockets, at the edge: Unix and TCP, who is at the other end, and whole frames within bounds of time.

What may take long is bounded by the kernel (SO_RCVTIMEO, SO_SNDTIMEO), so a call that is answered at once costs two
system calls and no more. Knows lengths of frames and nothing of what is in them.
"""
# Calls the system with plain strings, as logger/posix_*.py do:
# ruff: noqa: PTH101, PTH104, PTH108, PTH112

import contextlib
import errno
import os
import pwd
import select
import socket
import ssl
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from qmgr.wire import LENGTH, MIN_FRAME_BYTES, ProtocolError

RECEIVE_BYTES = 64 << 10  # nearly all frames come with one call
TLS_RECORD_BYTES = 16 << 10  # TLS sends a record whole or not at all
CHUNK_BYTES = 256 << 10  # by which a long frame is received, so that nobody can make us reserve what never comes
MAX_POLL_S = (2**31 - 1) // 1000  # 24 days
MAX_PATH_BYTES = 100  # of a Unix socket; the system takes a few more
BACKLOG = 1024  # connections that the system keeps until they are accepted
CONNECT_TIMEOUT_S = 30.0
WIDE_RCVTIMEO = 66  # its number on Linux of 32 bits where the C library's times have 64, and the kernel's bound with it
TIMEVAL = struct.Struct("@qq" if socket.SO_RCVTIMEO == WIDE_RCVTIMEO else "@ll")
TCP_INFO = struct.Struct("=120xQ16xI")  # bytes that are acknowledged, bytes that are not sent yet
HALF_CLOSED = getattr(select, "POLLRDHUP", 0)  # Linux
CREDENTIALS = struct.Struct("3i")
Ticks = Callable[[], int]  # nanoseconds, as `Clock.elapsed_ns`

Socket = socket.socket
Gone = (OSError, EOFError)  # what a lost connection raises


class TooSlow(EOFError):
    """A frame that was begun did not come to its end in time."""


Timeouts = (TooSlow, BlockingIOError, TimeoutError, ssl.SSLWantReadError)  # what a bound of time raises


def is_timeout(exc: Exception) -> bool:
    """Is it a limit of time of our own that has passed? The system's own, for a dead network, is ETIMEDOUT."""
    return isinstance(exc, Timeouts) and getattr(exc, "errno", None) != errno.ETIMEDOUT


def is_name_error(exc: OSError) -> bool:
    """Has nobody been asked for a connection, since the host's name leads nowhere?"""
    return isinstance(exc, socket.gaierror)


def system_message(exc: OSError) -> str:
    """What the system says of an error, without what Python adds."""
    if exc.errno is not None and exc.errno > 0 and not is_name_error(exc):
        return os.strerror(exc.errno)
    said = exc.strerror or str(exc)  # `socket.create_server` has added to what the resolver says of a name
    return said.partition(" (while attempting ")[0]


# ---- frames


def receive(sock: Socket, most: int, seconds: float = 0.0, ticks: Ticks | None = None) -> bytes:
    """The next frame; b"" where the other end has closed the connection in between two of them.

    A frame that was begun has `seconds` to be complete by the clock `ticks`; 0: for ever. Raises ProtocolError for a
    frame of more than `most` bytes, before anything is reserved for it; EOFError, OSError.
    """
    data = sock.recv(RECEIVE_BYTES)
    if MIN_FRAME_BYTES <= len(data) <= most and LENGTH.unpack_from(data)[0] + 4 == len(data):
        return data
    if not data:
        return b""
    return _receive_rest(sock, data, most, seconds, ticks)


def receive_answer(sock: Socket, most: int, word: bytes) -> bytes:
    """As `receive`, where frames that are `word` may come before what is waited for: they are passed over."""
    while True:
        data = sock.recv(RECEIVE_BYTES)
        if MIN_FRAME_BYTES <= len(data) <= most and LENGTH.unpack_from(data)[0] + 4 == len(data) and data != word:
            return data
        if not data:
            return b""
        while data.startswith(word):  # several have come with one call, or with the beginning of what follows
            data = data[len(word) :]
        frame = data and _receive_rest(sock, data, most, 0.0, None)
        if frame and frame != word:
            return frame


def receive_now(sock: Socket) -> bytes:
    """What has come by a socket on which something has, a piece at most; b"" at its end. Raises OSError."""
    return sock.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)


def is_frame(data: bytes, most: int) -> bool:
    """Is it one frame, of `most` bytes at most, and nothing else?"""
    return MIN_FRAME_BYTES <= len(data) <= most and LENGTH.unpack_from(data)[0] + LENGTH.size == len(data)


def receive_rest(sock: Socket, data: bytes, most: int, seconds: float, ticks: Ticks) -> bytes:
    """Receive the frame whose first bytes are `data`; `most`, `seconds` and `ticks` as in `receive`."""
    return data if is_frame(data, most) else _receive_rest(sock, data, most, seconds, ticks)


def send_now(sock: Socket, data: bytes) -> bytes | memoryview:
    """Send what takes no waiting; what is left. Raises OSError."""
    try:
        sent = sock.send(data, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return data
    return b"" if sent == len(data) else memoryview(data)[sent:]


def receive_one(sock: Socket, most: int) -> bytes:
    """Receive one frame of several small ones: unlike `receive` it takes nothing of those that follow it."""
    data = sock.recv(LENGTH.size)
    return data and _receive_rest(sock, data, most, 0.0, None)


def _receive_rest(sock: Socket, data: bytes, most: int, seconds: float, ticks: Ticks | None) -> bytes:
    deadline = ticks() + int(seconds * 1e9) if ticks is not None and seconds else 0
    try:
        got = bytearray(data)
        while len(got) < LENGTH.size:
            _receive_more(sock, got, LENGTH.size - len(got), deadline, ticks)
        size = LENGTH.unpack_from(got)[0] + LENGTH.size
        if not MIN_FRAME_BYTES <= size <= most:
            raise ProtocolError(f"a frame of {size} bytes is not one of {MIN_FRAME_BYTES} to {most}")
        if len(got) > size:
            raise ProtocolError("a request came before the one before it was answered")
        while len(got) < size:
            _receive_more(sock, got, min(CHUNK_BYTES, size - len(got)), deadline, ticks)
        return bytes(got)
    finally:
        if deadline:
            limit_receive(sock, 0.0)


def _receive_more(sock: Socket, got: bytearray, size: int, deadline: int, ticks: Ticks | None) -> None:
    if deadline and ticks is not None:
        left = (deadline - ticks()) / 1e9
        if left <= 0:
            raise TooSlow("a frame that was begun did not come to its end in time")
        limit_receive(sock, left)
    try:
        piece = sock.recv(size)
    except (BlockingIOError, ssl.SSLWantReadError, TimeoutError):
        raise TooSlow("a frame that was begun did not come to its end in time") from None
    if not piece:
        raise EOFError("the connection was closed in the middle of a frame")
    got += piece


def send_all(sock: Socket, data: Any, seconds: float) -> None:
    """Send all of it, if the other end never lets `seconds` go by without taking any; 0: for ever. Raises OSError.

    A timeout of Python's `sendall` is one for everything, of `send` over TLS for all that it is given.
    """
    sock.settimeout(seconds or None)
    most = TLS_RECORD_BYTES if isinstance(sock, ssl.SSLSocket) else CHUNK_BYTES
    left = memoryview(data)
    while left:
        left = left[sock.send(left[:most]) :]


def send_if_room(sock: Socket, data: bytes) -> bool:
    """Send a few bytes where nothing else waits to be sent, if that takes no waiting; False: there is no room."""
    try:
        if not isinstance(sock, ssl.SSLSocket):
            return sock.send(data, socket.MSG_DONTWAIT) == len(data)
        if not _has_room(sock):  # TLS has to send the whole of what it has begun
            return False
        sock.sendall(data)
    except BlockingIOError:
        return False
    except OSError:  # that the other end is gone is noticed elsewhere
        pass
    return True


def _has_room(sock: Socket) -> bool:
    """Would the system take some kilobytes at once, to be sent?"""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(0))


class TlsSocket(ssl.SSLSocket):
    """Python's TLS knows nothing of the kernel's bounds of time, and has one for both directions."""

    sending = 0.0

    def sendall(self, data: Any, flags: int = 0) -> None:
        before = self.gettimeout()
        try:
            send_all(self, data, self.sending)
        finally:
            self.settimeout(before)


class UnixSocket(socket.socket):
    """A client's. It waits in poll: a wait in recv also ends when the other end takes what it was sent.

    Such a wake-up is for nothing, and takes as long as the answer to a small call.
    """

    def __init__(self) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self.receiving: int | None = None  # milliseconds
        waiting = select.poll()
        waiting.register(self, select.POLLIN)
        self._wait = waiting.poll

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self._wait(self.receiving):
            raise BlockingIOError(errno.EAGAIN, "nothing has come in time")
        return super().recv(size, flags)


def with_tls(sock: Socket, context: ssl.SSLContext, seconds: float, host: str | None = None) -> Socket:
    """Go on over TLS on a connection that is there; the handshake may take `seconds`.

    `host` is the name that the server's certificate must have; None: this is the server.
    """
    context.sslsocket_class = TlsSocket
    sock.settimeout(seconds)
    wrapped = context.wrap_socket(sock, server_side=host is None, server_hostname=host)
    wrapped.settimeout(None)
    return wrapped


def limit_receive(sock: Socket, seconds: float) -> None:
    """Let a receive wait so many seconds at most; 0, or more than poll can wait for: for ever."""
    if seconds > MAX_POLL_S:
        seconds = 0.0
    if isinstance(sock, TlsSocket):
        sock.settimeout(seconds or None)
    elif isinstance(sock, UnixSocket):
        sock.receiving = max(1, int(seconds * 1000)) if seconds else None
    else:
        _limit(sock, socket.SO_RCVTIMEO, seconds)


def limit_send(sock: Socket, seconds: float) -> None:
    """Let a send wait so many seconds at most, as `limit_receive`: who never reads loses the connection then."""
    if seconds > MAX_POLL_S:
        seconds = 0.0
    if isinstance(sock, TlsSocket):
        sock.sending = seconds
    else:
        _limit(sock, socket.SO_SNDTIMEO, seconds)


def _limit(sock: Socket, option: int, seconds: float) -> None:
    us = max(1, int(seconds * 1e6)) if seconds else 0
    sock.setsockopt(socket.SOL_SOCKET, option, TIMEVAL.pack(us // 1_000_000, us % 1_000_000))


def close(sock: Socket) -> None:
    """Close it at once, also for a thread that waits in it."""
    hang_up(sock)
    with contextlib.suppress(OSError):
        sock.close()


def hang_up(sock: Socket) -> None:
    """Let the thread that uses it find it closed."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # of TLS too: that of SSLSocket is not for other threads


def pair() -> tuple[Socket, Socket]:
    """Two ends of one connection."""
    return socket.socketpair()


def await_end(sock: Socket, seconds: float | None = None) -> None:
    """Wait until the other end closes a connection on which it sends nothing; `seconds` at most, None: for ever."""
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):
        poll.register(sock, select.POLLIN)
        poll.poll(None if seconds is None else int(seconds * 1000))


def is_open(sock: Socket) -> bool:
    """Is a connection still open on which the other end sends nothing?"""
    return not is_readable(sock)


def is_readable(sock: Socket) -> bool:
    """Has something come that nobody has read yet, or is the connection over?"""
    poll = select.poll()
    try:
        poll.register(sock, select.POLLIN)
    except (OSError, ValueError):
        return True
    return bool(poll.poll(0))


def peer_has_closed(sock: Socket) -> bool:
    """Has the other end closed the connection, or its half of it, whatever it has sent before? False: not for sure."""
    poll = select.poll()
    try:
        poll.register(sock, HALF_CLOSED)
        return any(event & (HALF_CLOSED | select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return True


def send_progress(sock: Any) -> tuple[int, bool]:
    """(bytes that the other end has taken so far, whether any wait to be sent), where the system tells: Linux."""
    option = getattr(socket, "TCP_INFO", None)
    if option is not None and sys.platform == "linux":
        with contextlib.suppress(OSError):
            told = sock.getsockopt(socket.IPPROTO_TCP, option, TCP_INFO.size)
            if len(told) == TCP_INFO.size:
                taken, unsent = TCP_INFO.unpack(told)
                return taken, bool(unsent)
    return 0, False


def shutdown_send(sock: Socket) -> None:
    """The other end finds that nothing comes any more; it can still send."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_WR)


def shutdown_receive(sock: Socket) -> None:
    """What comes from now on is not received; an answer can still be sent."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RD)


# ---- Unix


@contextlib.contextmanager
def _short_path(path: str) -> Iterator[str]:
    """A name for `path` that is short enough for the system. Raises OSError where there is none."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    if not os.path.isdir("/proc/self/fd"):
        text = (
            f"on this system the path of a Unix socket has {MAX_PATH_BYTES} bytes at most; choose a shorter data path"
        )
        raise OSError(errno.ENAMETOOLONG, text, path)
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def listen_unix(path: str) -> tuple[Socket, int]:
    """(a socket that listens there for this user only, the number of its file).

    The caller owns the place: a socket that lies there is of a process that is gone. The new one gets its name once it
    accepts, so nobody finds it before that. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "this is not a socket; move it away", path)
    new = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):  # of a socket others refuse it; nobody else gets into its directory anyway
            os.fchmod(sock.fileno(), 0o600)  # on Linux the file gets this mode, with no moment in between
        with _short_path(new) as name:
            _bind(sock, name, path)
        os.chmod(new, 0o600)
        sock.listen(BACKLOG)
        number = os.lstat(new).st_ino
        os.rename(new, path)
    except BaseException:
        sock.close()
        raise
    return sock, number


def _bind(sock: Socket, name: str, path: str) -> None:
    """Bind it. Raises OSError, which says that it is about `path`: the system's own names no file."""
    try:
        sock.bind(name)
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror or str(exc), path) from exc


def remove_unix(path: str, number: int) -> None:
    """Remove the socket's file, unless it is another one by now."""
    with contextlib.suppress(OSError):
        if os.lstat(path).st_ino == number:
            os.unlink(path)


def connect_unix(path: str, seconds: float = CONNECT_TIMEOUT_S) -> Socket:
    """Connect to a Unix socket. Raises FileNotFoundError, ConnectionRefusedError where nobody listens; OSError."""
    sock = UnixSocket()
    try:
        limit_send(sock, seconds)  # a daemon that is stopped accepts nobody
        with _short_path(path) as name:
            sock.connect(name)
        limit_send(sock, 0.0)
    except BaseException:
        sock.close()
        raise
    return sock


def peer_of(sock: Socket) -> tuple[int, str]:
    """(process id, user) at the other end of a Unix socket, as the kernel says; 0 where it does not say which."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:  # no Linux: the mode of the file lets in this user only
        return 0, user_name(os.getuid())
    pid, uid, _ = CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, CREDENTIALS.size))
    return pid, user_name(uid)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# ---- TCP


def listen_tcp(address: str, port: int) -> Socket:
    """A socket that listens there. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=BACKLOG)


def connect_tcp(host: str, port: int, seconds: float) -> Socket:
    """Connect over TCP; `seconds` are for that only. Raises OSError."""
    sock = socket.create_connection((host, port), timeout=seconds)
    sock.settimeout(None)
    tune(sock)
    return sock


def tune(sock: Socket) -> None:
    """Small frames go at once, and a peer that is gone is found out."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# ---- this process


def process() -> int:
    return os.getpid()


def in_child(callback: Callable[[], None]) -> None:
    """Call it in every child that this process forks."""
    os.register_at_fork(after_in_child=callback)


def close_here(sock: Socket) -> None:
    """Close it in this process alone, where all that have the object find it closed; the other end hears nothing."""
    with contextlib.suppress(OSError):
        os.close(sock.detach())


def name_of(sock: Socket, place: str) -> str:
    """Who is at the other end of a socket that was accepted at this place, for operators."""
    try:
        if sock.family == socket.AF_UNIX:
            return f"pid {peer_of(sock)[0]} at {place}"
        return "{}:{}".format(*sock.getpeername()[:2])
    except OSError:
        return f"somebody at {place}"
