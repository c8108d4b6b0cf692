"""The process that forks Spark's Python workers: pyspark's own, silent where Spark has hung up on a worker.

Spark closes the socket of a worker when it needs no more of it: behind a LIMIT, when a query is stopped, after a minute
without work. What the worker has still to say then meets a broken pipe, of which pyspark prints a traceback.
"""

import socket
import sys

from pyspark import daemon

serve = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """In a fork, serve one task; not 0 where the process is to end."""
    try:
        return serve(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        sys.unraisablehook = lambda _: None  # Python 3.13 reports it again when unflushed output is dropped
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
