"""Nursery: a process that has imported the daemon already and forks one for each start, which spares the imports.

What it makes are daemons as `python -m qmgr.daemon` runs them, each in a process of its own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import qmgr
from qmgr.daemon import local
from qmgr.daemon.starting import foreground
from tests.conformance.calls import DEADLINE, until
from tests.qmgr.world import NAME

assert local  # the listener that every daemon needs


def halt(process: int) -> None:
    """SIGSTOP, and wait until no thread of the process does anything: until then one may still answer."""
    os.kill(process, signal.SIGSTOP)
    threads = Path(f"/proc/{process}/task")
    until(lambda: all(_state(thread) == "T" for thread in threads.iterdir()))


def _state(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


class Daemon:
    """A daemon that was started; `ended` and `kill` as of a subprocess."""

    def __init__(self, nursery: "Nursery", data_path: Path) -> None:
        """Return when it takes connections."""
        self._nursery = nursery
        self._code: int | None = None
        self.pid: int = nursery.ask("start", str(data_path))

        def ready() -> bool:
            assert self.poll() is None, f"the daemon has ended with {self._code}"
            try:
                qmgr.connect(NAME, data_path=data_path).close()
            except qmgr.Unavailable:
                return False
            return True

        until(ready)

    def poll(self) -> int | None:
        """Its exit code, negative that of a signal; None while it runs."""
        if self._code is None:
            self._code = self._nursery.ask("poll", self.pid)
        return self._code

    def signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Its exit code when it has ended by itself."""
        until(lambda: self.poll() is not None)
        assert self._code is not None
        return self._code


class Nursery:
    """Starts daemons."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

        self._started: list[Daemon] = []

    def start(self, data_path: Path) -> Daemon:
        self._started = [*self.running, Daemon(self, data_path)]
        return self._started[-1]

    @property
    def running(self) -> list[Daemon]:
        """Those that have not ended."""
        return [daemon for daemon in self._started if daemon.poll() is None]

    def ask(self, *question: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Kills the daemons that are left."""
        self._process.communicate(timeout=DEADLINE)


def main() -> None:
    """Answer questions until there are no more."""
    children: set[int] = set()
    for line in sys.stdin:
        what, value = json.loads(line)
        answer: int | None = None
        if what == "start":
            answer = os.fork()
            if not answer:
                become(value)
            children.add(answer)
        else:
            pid, status = os.waitpid(value, os.WNOHANG)
            if pid:
                answer = os.waitstatus_to_exitcode(status)
                children.discard(pid)
        print(json.dumps(answer), flush=True)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def become(data_path: str) -> None:
    """Be a daemon; the process ends with it."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        code, text = foreground(NAME, data_path)
        if text:
            print(text, file=sys.stderr, flush=True)
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
