"""A program with stomp.py, an independent client: `python stomp_py_client.py PORT VERSION`; says as JSON what it saw.

It moves orders from A to invoices on B in transactions, one of which it gives up, and leaves in order.
"""

import json
import queue
import sys
from typing import Any

import stomp  # type: ignore[import-untyped]

DEADLINE = 30


class Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.headers.get("message", ""))
        self.messages.put(None)
        self.receipts.put("error")


def connect(port: int, version: str) -> tuple[Any, Listener]:
    made = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}[version]
    options = {} if version == "1.0" else {"heartbeats": (500, 500)}
    connection = made([("127.0.0.1", port)], **options)
    listener = Listener()
    connection.set_listener("", listener)
    connection.connect("user", "secret", wait=True)
    return connection, listener


def acknowledge(connection: Any, frame: Any, version: str, transaction: str | None = None) -> None:
    headers = frame.headers
    if version == "1.2":
        connection.ack(headers["ack"], transaction)
    elif version == "1.1":
        connection.ack(headers["message-id"], headers["subscription"], transaction)
    else:
        connection.ack(headers["message-id"], transaction)


def main(port: int, version: str) -> dict[str, Any]:
    connection, listener = connect(port, version)
    for number in range(4):
        text = f"order {number} of a:b\\c é"
        connection.send("/queue/A", text, headers={"receipt": f"r{number}", "colour": "a:b", "persistent": "true"})
    receipts = [listener.receipts.get(timeout=DEADLINE) for _ in range(4)]
    connection.subscribe("/queue/A", id="1", ack="client-individual")
    bodies, seen = [], []
    for number in range(5):
        frame = listener.messages.get(timeout=DEADLINE)
        bodies.append(frame.body)
        seen.append(frame.headers.get("redelivered", "false"))
        transaction = connection.begin()
        connection.send("/queue/B", f"invoice for {frame.body}", transaction=transaction)
        acknowledge(connection, frame, version, transaction)
        if number == 1:
            connection.abort(transaction)
        else:
            connection.commit(transaction)
    connection.disconnect(receipt="bye")
    receipts.append(listener.receipts.get(timeout=DEADLINE))
    colours = frame.headers["colour"]
    _, refused = failing(port, version)
    return {"receipts": receipts, "bodies": bodies, "again": seen, "colour": colours, "refused": refused}


def failing(port: int, version: str) -> tuple[Any, list[str]]:
    """What a send to a queue that is not there is told."""
    connection, listener = connect(port, version)
    connection.send("/queue/NONE", "x", receipt="never")
    assert listener.receipts.get(timeout=DEADLINE) == "error"
    return connection, listener.errors


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2])))
