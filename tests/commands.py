"""Commands in a process each that is forked from one which has imported them: a start costs little then.

Streams, environment, directory, process number and exit code are the command's own, and the interpreter ends as it
always does; only its beginning is shared. Where that matters, with closed streams or encodings, commands are started.
"""

import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = "qmgr.cli.main"
REQUEST = 1 << 20


class Commands:
    """The process that has imported the commands, as the tests see it."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.commands", str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONDEVMODE": ""},
            )

    def run(self, words: list[str], environment: Mapping[str, str], seconds: float = 300) -> "Completed":
        """Run `qm WORDS`; what it said and ended with."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            ended, tells = os.pipe()
            try:
                request = json.dumps({"words": words, "environment": dict(environment)}).encode()
                socket.send_fds(self._socket, [request], [out.fileno(), err.fileno(), tells])
            finally:
                os.close(tells)
            with open(ended, "rb") as told:
                if not select.select([told], [], [], seconds)[0]:
                    raise subprocess.TimeoutExpired(words, seconds)
                code = int(told.read())
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
            _, status = os.waitpid(command, 0)
            os.write(tells, b"%d" % os.waitstatus_to_exitcode(status))
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
    runpy.run_module(MODULE)  # imports whatever it needs
    sys.modules.pop(MODULE, None)
    with socket.socket(fileno=int(sys.argv[1])) as all_requests:
        asked_for = serve(all_requests)
    if asked_for is None:
        bury(0)
    else:
        sys.argv = ["qm", *asked_for]
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
