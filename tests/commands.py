"""Commands, or another module, in processes that are forked from one which has imported it: a start costs little then.

Streams, environment, directory, process number and exit code are the command's own, and the interpreter ends as it
always does; only its beginning is shared. Where that matters, with closed streams or encodings, commands are started.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qmgr import cli

ROOT = Path(__file__).parents[1]
MODULE = "qmgr.cli.main"
# What the product imports when it needs it, and most commands do: more than half of the time of one that starts a
# queue manager.
LATER = ("structlog", "logger.polled", "qmgr.public")
REQUEST = 1 << 20


class Started:
    """A process that was forked."""

    def __init__(self, tells: int) -> None:
        self._told = os.fdopen(tells, "rb", buffering=0)
        self.pid = int(self._told.readline())
        self._code: int | None = None

    def wait(self, seconds: float) -> int:
        """Its exit code; negative: the number of the signal that killed it."""
        if self._code is None:
            if not select.select([self._told], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), seconds)
            self._code = int(self._told.readline())
            self._told.close()
        return self._code

    def kill(self) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Commands:
    """The process that has imported the commands, as the tests see it."""

    def __init__(self, module: str = MODULE) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.commands", str(other.fileno()), module],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONDEVMODE": ""},
            )

    def start(self, words: list[str], environment: Mapping[str, str], out: int, err: int) -> Started:
        """Begin `qm WORDS`, which writes to these files."""
        ended, tells = os.pipe()
        try:
            request = json.dumps({"words": words, "environment": dict(environment)}).encode()
            socket.send_fds(self._socket, [request], [out, err, tells])
        finally:
            os.close(tells)
        return Started(ended)

    def run(self, words: list[str], environment: Mapping[str, str], seconds: float = 300) -> "Completed":
        """Run `qm WORDS`; what it said and ended with."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = self.start(words, environment, out.fileno(), err.fileno()).wait(seconds)
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(words, code, out.read().decode(), err.read().decode())

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


Completed = subprocess.CompletedProcess[str]


def bury(how: int = os.WNOHANG) -> None:
    """Wait for those that have ended; `how` 0: until all have."""
    try:
        while os.waitpid(-1, how)[0]:
            pass
    except ChildProcessError:
        pass


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request, and once more, so that somebody waits for it; in the last of these return its words."""
    while True:
        request, given, _, _ = socket.recv_fds(requests, REQUEST, 3)
        if not request:
            return None
        waits = os.fork()
        if waits:
            for number in given:
                os.close(number)
            bury()
            continue
        requests.close()
        out, err, tells = given
        command = os.fork()
        if command:
            os.write(tells, b"%d\n" % command)
            _, status = os.waitpid(command, 0)
            os.write(tells, b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        os.close(tells)
        for number, stream in ((out, 1), (err, 2)):
            os.dup2(number, stream)
            os.close(number)
        asked = json.loads(request)
        os.environ.clear()
        os.environ.update(asked["environment"])
        words: list[str] = asked["words"]
        return words


if __name__ == "__main__":
    wanted = sys.argv[2]
    runpy.run_module(wanted)  # imports whatever it needs
    for name in LATER:
        importlib.import_module(name)
    if wanted == MODULE:
        for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):  # which it imports when it needs them
            importlib.import_module(module.name)
    sys.modules.pop(wanted, None)
    gc.collect()
    gc.freeze()  # else each process looks through all that was imported as it ends, and gets a copy of it by that
    with socket.socket(fileno=int(sys.argv[1])) as all_requests:
        asked_for = serve(all_requests)
    if asked_for is None:
        bury(0)
    else:
        sys.argv = ["qm", *asked_for]
        runpy.run_module(wanted, run_name="__main__", alter_sys=True)
