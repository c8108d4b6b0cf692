"""Daemons: queue managers in processes of their own, started and ended by commands. None outlives its test."""

import contextlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import qmgr
from logger.posix_disk import PosixDisk
from qmgr import life, locations
from qmgr.cli import access
from qmgr.client import Connection, connect
from qmgr.life import Note, Stage
from qmgr.locations import Location
from tests.commands import Commands, Completed
from tests.qmgr.world import SMALL

PATIENCE = 30.0  # seconds after which a test gives up


class Daemons:
    """Queue managers on a data path of their own."""

    def __init__(self, commands: Commands, data: Path) -> None:
        self._commands = commands
        self.data = data
        self.environment = {**os.environ, "QMGR_DATA_PATH": str(data), "PYTHONDEVMODE": ""}
        self.environment.pop("NOTIFY_SOCKET", None)
        self._threads = ThreadPoolExecutor(4)

    def run(self, words: str) -> Completed:
        """Run `qm WORDS`; it never shows a traceback."""
        done = self._commands.run(shlex.split(words), self.environment)
        assert "Traceback" not in done.stderr and "AMQ6118" not in done.stderr, done.stderr
        return done

    def make(self, name: str = "QM1", ini: str = "", **options: Any) -> Location:
        """Create a queue manager, with more lines in its qm.ini."""
        qmgr.create(name, data_path=self.data, **(SMALL | options))
        with open(self.where(name).ini, "a") as file:
            file.write(ini)
        return self.where(name)

    def start(self, name: str = "QM1") -> int:
        """Start it in the background; the number of its process."""
        done = self.run(f"strmqm {name}")
        assert done.returncode == 0, done.stderr
        return self.note(name).process

    def made(self, name: str = "QM1", ini: str = "") -> int:
        self.make(name, ini)
        return self.start(name)

    def foreground(self, name: str = "QM1", **environment: str) -> "Future[Completed]":
        """Start it in the foreground and wait until it is ready; what it says and ends with comes with its end."""
        words = ["strmqm", "--foreground", name]
        done = self._threads.submit(self._commands.run, words, self.environment | environment)
        wait_for(lambda: done.done() or self.there(Stage.RUNNING, name))
        return done

    def there(self, stage: str, name: str = "QM1") -> bool:
        """Is there a daemon that says so?"""
        note = life.daemon(PosixDisk(), self.where(name))
        return note is not None and note.stage == stage

    def where(self, name: str = "QM1") -> Location:
        return locations.find(name, str(self.data))

    def note(self, name: str = "QM1") -> Note:
        """What the daemon says, or has said at last."""
        note = life.last(PosixDisk(), self.where(name))
        assert note is not None
        return note

    def connect(self, name: str = "QM1") -> Connection:
        return connect(name, data_path=str(self.data))

    def status(self, name: str = "QM1") -> str:
        """In the words of dspmq."""
        return access.status(self.where(name))

    def until(self, stage: str, name: str = "QM1") -> None:
        """Wait until the daemon says that it is there."""
        wait_for(lambda: self.note(name).stage == stage)

    def ended(self, name: str = "QM1") -> None:
        """Wait until nobody has it."""
        disk, location = PosixDisk(), self.where(name)
        wait_for(lambda: disk.locked_by(life.path(location)) is None and disk.locked_by(location.lock) is None)

    def errors(self, name: str = "QM1") -> str:
        """The error log."""
        return (Path(self.where(name).errors) / "AMQERR01.LOG").read_text()

    def close(self) -> None:
        disk = PosixDisk()
        for directory in self.data.glob("qmgrs/*"):
            location = locations.find(directory.name, str(self.data))
            note = life.daemon(disk, location)
            if note is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(note.process, signal.SIGKILL)
        self._threads.shutdown()


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until it is so."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it has not come to that"
        pause.wait(0.01)
