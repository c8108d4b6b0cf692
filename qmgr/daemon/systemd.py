"""sd_notify: telling the service manager that started us how we are, where it has asked for that."""

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends to the socket that the environment names; without one, or where nobody listens, nothing happens."""

    def __init__(self, address: str | None = None) -> None:
        said = os.environ.get(VARIABLE, "") if address is None else address
        self._address = "\0" + said[1:] if said.startswith("@") else said  # @: an abstract address of Linux
        self._there = said[:1] in ("@", "/")

    def say(self, **fields: str | int) -> None:
        """`READY=1`, `STATUS="…"` and so on, in one datagram."""
        if self._there:
            text = "".join(f"{name}={value}\n" for name, value in fields.items())
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
