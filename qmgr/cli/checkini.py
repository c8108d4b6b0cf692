"""qm checkini: say all that is wrong with qm.ini, and with what it names, without starting anything."""

import argparse
import contextlib

from logger import control
from logger.at_rest import control_path
from logger.errors import LogError, NotAsConfigured
from logger.log import check_config
from logger.whole_files import read_whole
from qmgr import autoconfig, ini, locations, mqsini
from qmgr.cli import access
from qmgr.cli.access import CLOCK, DISK
from qmgr.cli.command import NAME_ERROR, UNEXPECTED, Command, Failure, Parser, absolute, complain
from qmgr.configuration import Config
from qmgr.daemon.tls import outdated, server_context
from qmgr.errors import IniError, NameError_
from qmgr.ini_text import complaint
from qmgr.missing import remains
from qmgr.users import Users

COMPLAINTS = 10


def options(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-m", metavar="QMgrName", help="its qm.ini and mqs.ini; the default: those of the default one")
    text = "the queue manager, or any qm.ini or mqs.ini; what could be either is a queue manager (else ./FILE)"
    what.add_argument("name", metavar="QMgrName|FILE", nargs="?", help=text)


def run(args: argparse.Namespace) -> int:
    if args.name and not _is_queue_manager(args.name, args.data_path):
        path = absolute(args.name)
        if not DISK.exists(path):
            text = f"there is neither a queue manager {args.name!r} nor a file {path}; dspmq shows queue managers."
            if "/" in args.name:
                raise Failure(UNEXPECTED, "AMQ7002S", text)
            what = _remains(args.name, args.data_path)
            raise Failure(NAME_ERROR, "AMQ7048E", f"{what}." if what else text)
        wrong = of_file(path)
    else:
        location = access.known(access.named(args.m or args.name, args.data_path), args.data_path)
        path = location.ini
        users = Users(DISK, location).complaint()
        wrong = of_mqs_ini(f"{location.data_root}/mqs.ini") + of_file(path) + ([users] if users else [])
    for text in wrong:
        complain(text)
    if not any(amq_severity(text) == "E" for text in wrong):
        print(f"{path} is good.")
        return 0
    return COMPLAINTS


def _is_queue_manager(name: str, data_path: str | None) -> bool:
    with contextlib.suppress(NameError_):
        return access.exists(name, data_path)
    return False


def _remains(name: str, data_path: str | None) -> str:
    """What lies there in place of a queue manager of that name; "" where nothing does."""
    with contextlib.suppress(NameError_):
        return remains(DISK, locations.find(name, data_path))
    return ""


def amq_severity(text: str) -> str:
    """The letter of AMQnnnnE."""
    return text.partition(":")[0][-1:]


def of_file(path: str) -> list[str]:
    """What is wrong with a qm.ini, or with a file that bears the name mqs.ini."""
    if path.endswith("/mqs.ini"):
        return of_mqs_ini(path)
    text = read_whole(DISK, path)
    wrong = [exc.sentence for exc in ini.complaints(text, path)]
    if wrong:
        return wrong
    found = ini.parse(text, path)
    overlays = autoconfig.files(DISK, found.auto_config.ini_config, ".ini")
    wrong = list(overlays.complaints)
    wrong += [exc.sentence for exc in ini.complaints(text, path, [(content, name) for name, content in overlays.files])]
    config = autoconfig.configuration(DISK, path)
    wrong += autoconfig.files(DISK, config.auto_config.mqsc_config, ".mqsc").complaints
    wrong += misfit(config, path)
    wrong += missing(config, path) or unusable(config)
    wrong += [f"AMQ7075W: {path}: {each} has no effect here." for each in config.ignored]
    return wrong + [f"AMQ7075W: {path}: {each}." for each in config.idle]


def misfit(config: Config, path: str) -> list[str]:
    """Where the file does not fit the log that is there, so that a start would be refused."""
    with contextlib.suppress(LogError, OSError):  # a log that can't be read is no matter of this file
        _, state = control.read(DISK, control_path(config.log.path))
        try:
            check_config(config.log, state)
        except NotAsConfigured as exc:
            line = ini.line_of(read_whole(DISK, path), path, "Log", exc.attribute)
            return [complaint("AMQ7076", path, line, f"{exc}.").sentence]
    return []


def missing(config: Config, path: str) -> list[str]:
    """What the file names and is not there."""
    named = {"LogPath": config.log.path}
    for each in config.listeners:
        files = {"TLSCertificate": each.tls_certificate, "TLSKey": each.tls_key, "TLSClientCA": each.tls_client_ca}
        named |= {f"{name} of listener {each.name!r}": file for name, file in files.items() if file is not None}
    return [
        f"AMQ6166E: {path}: {what} is {file}, and there is no such file or directory; correct it, or bring that back."
        for what, file in named.items()
        if not DISK.exists(file)
    ]


def unusable(config: Config) -> list[str]:
    """The listeners whose files TLS can't use: a key is another certificate's, say, or a certificate is too old."""
    wrong = []
    for each in config.listeners:
        try:
            server_context(each)
            wrong += [f"AMQ9633E: {text}." for text in outdated(each, CLOCK.wall_us())]
        except IniError as exc:
            wrong.append(exc.sentence)
    return wrong


def of_mqs_ini(path: str) -> list[str]:
    """What is wrong with an mqs.ini."""
    try:
        listed = mqsini.read(DISK, path)
    except IniError as exc:
        return [exc.sentence]
    wrong = [exc.sentence for exc in mqsini.complaints(read_whole(DISK, path), path)] if DISK.exists(path) else []
    return wrong + [
        f"AMQ7048W: {path}: queue manager {entry.name!r} is listed, and there is no {file}."
        for entry in listed.entries
        if not DISK.exists(file := f"{entry.prefix}/qmgrs/{entry.directory}/qm.ini")
    ]


COMMAND = Command(
    name="checkini",
    purpose="Check the configuration of a queue manager without starting it.",
    notes="It reports all that is wrong, one line each, also files that are named and missing, or not usable for TLS.",
    usage="[-m QMgrName | QMgrName | FILE] [--data-path dir]",
    example="qm checkini QM1",
    codes={COMPLAINTS: "something is wrong, and was said"},
    options=options,
    run=run,
    own_name=False,
)
