"""A STOMP client that does as little as can be: what is measured with it is the daemon."""

import socket
from collections import deque

RECEIPT = b"RECEIPT\n"


class StompClient:
    """One connection. Frames go out as they are; receipts are counted."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""
        self._socket.sendall(b"CONNECT\naccept-version:1.2\nhost:BENCH\n\n\0")
        if not self._frame().startswith(b"CONNECTED\n"):
            raise ConnectionError("the daemon did not let the client in")

    def _frame(self) -> bytes:
        while b"\0" not in self._read:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the daemon has closed the connection")
            self._read += more
        frame, _, self._read = self._read.partition(b"\0")
        return frame.lstrip(b"\n")

    def receipts(self, count: int) -> None:
        """Wait for so many."""
        for _ in range(count):
            frame = self._frame()
            if not frame.startswith(RECEIPT):
                raise ConnectionError(frame.decode("utf-8", "replace"))

    def sends(self, queue: str, body: bytes, window: int) -> "Sends":
        return Sends(self, queue, body, window)

    def transaction(self, queue: str, body: bytes, sends: int) -> None:
        """BEGIN, so many SENDs, COMMIT; wait for the receipt of that."""
        parts = [b"BEGIN\ntransaction:t\n\n\0"]
        send = b"SEND\ndestination:/queue/%s\npersistent:true\ntransaction:t\ncontent-length:%d\n\n%s\0"
        parts += [send % (queue.encode(), len(body), body)] * sends
        parts.append(b"COMMIT\ntransaction:t\nreceipt:c\n\n\0")
        self.write(b"".join(parts))
        self.receipts(1)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


class Sends:
    """Durable sends, each with a receipt, so many of them on their way at a time."""

    def __init__(self, client: StompClient, queue: str, body: bytes, window: int) -> None:
        self._client = client
        head = b"SEND\ndestination:/queue/%s\npersistent:true\nreceipt:r\ncontent-length:%d\n\n"
        self._data = head % (queue.encode(), len(body)) + body + b"\0"
        self._window = window
        self._flying: deque[int] = deque()

    def step(self) -> None:
        """Send half a window, and wait until no more than the other half is on its way."""
        half = max(1, self._window // 2)
        self._client.write(self._data * half)
        self._flying.append(half)
        if len(self._flying) > 1 or self._window == 1:
            self._client.receipts(self._flying.popleft())

    @property
    def size(self) -> int:
        """Sends of a step."""
        return max(1, self._window // 2)

    def finish(self) -> None:
        while self._flying:
            self._client.receipts(self._flying.popleft())
