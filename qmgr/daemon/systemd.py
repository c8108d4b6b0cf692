"""sd_notify: telling the service manager that started us how we are, where it has asked for that."""

import os
import socket

VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends to the socket that the environment names; without one, or where nobody listens, nothing happens."""

    def __init__(self, address: str | None = None) -> None:
        said = os.environ.get(VARIABLE, "") if address is None else address
        self._address = "\0" + said[1:] if said.startswith("@") else said  # @: an abstract address of Linux
        self._there = said[:1] in ("@", "/")
        self.unsaid: dict[str, str | int] = {}  # for want of room at the other end; told with the next words

    def say(self, **fields: str | int) -> None:
        """`READY=1`, `STATUS="…"` and so on, in one datagram, without waiting."""
        fields = self.unsaid | fields
        self.unsaid = {}
        if self._there and fields:
            try:
                text = "".join(f"{name}={value}\n" for name, value in fields.items())
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.setblocking(False)
                    sender.sendto(text.encode(), self._address)
            except (BlockingIOError, MemoryError):  # its queue is full: that is short, and for all its services
                self.unsaid = fields
            except OSError:
                pass
