"""A queue manager with listeners in this process, as far as a listener needs the daemon."""

from pathlib import Path
from typing import Any

import attrs

import qmgr
from logger.clock import SystemClock
from logger.posix_disk import PosixDisk
from qmgr import locations
from qmgr.configuration import ChannelsConfig, ListenerConfig, Protocol
from qmgr.daemon.admission import Admission
from qmgr.session import Sessions

NAME = "QM1"


@attrs.define
class Face:
    """What a listener sees."""

    manager: qmgr.QueueManager
    channels: ChannelsConfig
    authority: Admission
    said: list[tuple[str, dict[str, Any]]]
    clock: SystemClock = attrs.Factory(SystemClock)

    @property
    def sessions(self) -> Sessions:
        return self.manager.sessions

    def say(self, amq: str, **inserts: Any) -> None:
        self.said.append((amq, inserts))


def face(directory: Path, channels: ChannelsConfig | None = None, **options: Any) -> Face:
    """A queue manager with the queue A; whoever asks for it ends it."""
    qmgr.create(NAME, data_path=directory, **({"log_file_pages": 256} | options))
    manager = qmgr.start(NAME, data_path=directory)
    manager.define_queue("A")
    said: list[tuple[str, dict[str, Any]]] = []
    location = locations.find(NAME, directory)
    admission = Admission(manager, PosixDisk(), location, lambda amq, **inserts: said.append((amq, inserts)))
    return Face(manager, channels or ChannelsConfig(), admission, said)


def listening(protocol: Protocol, **options: Any) -> ListenerConfig:
    """A listener on a free port of this machine that lets in whoever comes."""
    given = {"name": "test", "protocol": protocol, "port": 0, "authentication": ("NONE",)} | options
    return ListenerConfig(**given)
