"""The files that the AutoConfig stanza names: what is laid over qm.ini, and what MQSC runs at each start.

A file that is missing, can't be read or has a mistake is named in a complaint and left out; nothing else happens.
"""

import errno

import attrs

from logger.disk import Disk
from logger.whole_files import read_whole
from qmgr import ini
from qmgr.configuration import Config
from qmgr.errors import IniError


@attrs.frozen
class Found:
    """The files of one attribute: their paths and contents, in the order of their names; and what is wrong."""

    files: tuple[tuple[str, bytes], ...] = ()
    complaints: tuple[str, ...] = ()


def files(disk: Disk, path: str | None, ending: str) -> Found:
    """The file at `path`, or, if that is a directory, the files in it whose names end with `ending`; None: none."""
    if path is None:
        return Found()
    contents = []
    complaints = []
    try:
        names = _named(disk, path, ending)
    except OSError as exc:
        return Found(complaints=(_sentence(path, exc),))
    for name in names:
        try:
            contents.append((name, read_whole(disk, name)))
        except OSError as exc:
            complaints.append(_sentence(name, exc))
    return Found(tuple(contents), tuple(complaints))


def _named(disk: Disk, path: str, ending: str) -> list[str]:
    if not disk.exists(path):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
    try:
        return [f"{path}/{name}" for name in disk.list(path) if name.endswith(ending)]
    except NotADirectoryError:
        return [path]


def _sentence(path: str, exc: OSError) -> str:
    amq = {errno.ENOENT: "AMQ6166E", errno.EACCES: "AMQ6165E"}.get(exc.errno or 0, "AMQ6162E")
    return f"{amq}: {path}: {exc.strerror or exc}."


def configuration(disk: Disk, path: str) -> Config:
    """What qm.ini at `path` says, and the files laid over it. Raises IniError and OSError for qm.ini itself."""
    text = read_whole(disk, path)
    config = ini.parse(text, path)
    found = files(disk, config.auto_config.ini_config, ".ini")
    complaints = list(found.complaints)
    overlays: list[tuple[bytes, str]] = []
    for name, content in found.files:
        try:
            config = ini.parse(text, path, [*overlays, (content, name)])
        except IniError as exc:
            complaints.append(str(exc))
        else:
            overlays.append((content, name))
    return attrs.evolve(config, complaints=tuple(complaints))
