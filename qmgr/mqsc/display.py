"""What DISPLAY shows: the attributes of each object as text, under their MQSC names, in two columns."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logger.config import LogType
from logger.extent import file_name, linear_number
from qmgr import qmstatus
from qmgr.authority import Grant, shown
from qmgr.infos import LOCAL, ConnectionInfo, QueueInfo, TransactionInfo
from qmgr.mqsc import grammar
from qmgr.mqsc.values import BLANK
from qmgr.objects import AliasDefinition
from recovery.uows import UowState

if TYPE_CHECKING:
    from qmgr.manager import QueueManager

QUEUE = "AMQ8409I: Display Queue details."
QMGR = "AMQ8408I: Display Queue Manager details."
QSTATUS = "AMQ8450I: Display queue status details."
QMSTATUS = "AMQ8705I: Display Queue Manager Status Details."
AUTHREC = "AMQ8864I: Display authority record details."
CONN = "AMQ8276I: Display Connection details."

Fields = Mapping[str, str]


def lines(heading: str, first: Sequence[str], fields: Fields, asked: Iterable[str]) -> list[str]:
    """One object: its heading, the attributes that say which it is, and those that were asked for, if it has them."""
    words = [word for word in asked if word in fields and word not in first]
    return [heading, *qmstatus.layout(_shown(word, fields[word]) for word in [*first, *words])]


def _shown(word: str, text: str) -> str:
    return text if word in grammar.BARE else f"{word}({text})"


def _defined(table: grammar.Table, definition: Any) -> dict[str, str]:
    """The attributes of a table: as they are defined; those without effect here with the default of IBM MQ."""
    return {
        row.word: row.value.show(getattr(definition, row.python) if row.python else row.default)
        for row in table.values()
    }


# Queues


def queue(info: QueueInfo) -> Fields:
    blank = dict.fromkeys(grammar.QUEUE_SHOWS, BLANK)
    standing = {"CURDEPTH": _depth(info), "DEFTYPE": "PREDEFINED"}
    return {"QUEUE": info.name, "TYPE": "QLOCAL", **blank, **standing, **_defined(grammar.QLOCAL, info)}


def _depth(info: QueueInfo) -> str:
    """Blank where nobody knows: what of a damaged queue can't be read may be any number of messages."""
    return BLANK if info.damaged and not info.depth else str(info.depth)


def alias(definition: AliasDefinition) -> Fields:
    blank = dict.fromkeys(grammar.ALIAS_SHOWS, BLANK)
    return {"QUEUE": definition.name, "TYPE": "QALIAS", **blank, **_defined(grammar.QALIAS, definition)}


def queue_status(info: QueueInfo, media: str) -> Fields:
    """How a queue stands; `media`: the name of the oldest extent that its recovery needs."""
    put, got = qmstatus.moment(info.last_put), qmstatus.moment(info.last_get)
    return {
        "QUEUE": info.name,
        "TYPE": "QUEUE",
        **dict.fromkeys(grammar.STATUS_SHOWS, BLANK),
        "CURDEPTH": _depth(info),
        "LPUTDATE": put[0],
        "LPUTTIME": put[1],
        "LGETDATE": got[0],
        "LGETTIME": got[1],
        "MAXDEPTH": str(info.max_depth),
        "MEDIALOG": media,
        "MONQ": "OFF",
        "QTIME": " , ",
        "UNCOM": str(info.uncommitted) if info.uncommitted else "NO",
        "DAMAGED": info.damaged or BLANK,
    }


def media(manager: "QueueManager", name: str) -> str:
    """The oldest extent that the media recovery of this queue needs; blank where there is no media image of it."""
    with manager._engine.lock:
        there = manager._engine.state.queues.get(name)
        image = there.image if there is not None else None
    return _extent(manager, image.media) if image is not None else BLANK


# The queue manager


def queue_manager(manager: "QueueManager") -> Fields:
    fields = _defined(grammar.QMGR, manager.attributes)
    if manager.attributes.max_uncommitted is None:
        fields["MAXUMSGS"] = str(manager.config.tuning.max_uncommitted_messages)
    if manager.config.log.log_type is not LogType.LINEAR:
        fields["LOGGEREV"] = "DISABLED"  # it was enabled when the log was linear, and has no effect now
    none = {"COMMANDQ": BLANK, "DISTL": "NO"}  # there is no command server here, nor are there distribution lists
    return {"QMNAME": manager.name, **fields, **none, "PLATFORM": "UNIX", "MAXPRTY": "9", "SYNCPT": "SYNCPT"}


def queue_manager_status(manager: "QueueManager") -> Fields:
    shown = qmstatus.fields(manager.picture())
    none = {"CHINIT": "STOPPED", "CMDSERV": "STOPPED", "STANDBY": "NOPERMIT"}  # there are no such servers here
    none |= dict.fromkeys(("UNICLUS", "INSTDESC", "INSTNAME", "INSTPATH", "QMFSENC"), BLANK)
    return {"TYPE": "QMGR", **none, **shown, "CONNS": str(len(manager.connections()))}


def grant(one: Grant) -> Fields:
    """What a user may do."""
    return {
        "PROFILE": one.profile or "SELF",
        "ENTITY": one.user,
        "ENTTYPE": "PRINCIPAL",
        "OBJTYPE": one.kind.upper(),
        "AUTHLIST": ",".join(shown(one.rights)).upper() or "NONE",
    }


# Connections


def connections(manager: "QueueManager") -> Iterator[Fields]:
    """Each connection once for each of its units of work, and once if it has none."""
    for one in manager.connections():
        for unit in one.units or (None,):
            yield {**_connection(manager, one), "TYPE": "CONN", **_unit(manager, unit)}


def connection_name(number: int) -> str:
    """16 hexadecimal digits."""
    return f"{number:016X}"


def external_name(manager: "QueueManager") -> str:
    """What the names of all connections of this queue manager begin with: 32 hexadecimal digits."""
    return (b"AMQC" + manager.name[:12].ljust(12).encode()).hex().upper()


def _connection(manager: "QueueManager", one: ConnectionInfo) -> dict[str, str]:
    peer = one.peer
    process = re.fullmatch(r"pid (\d+)", peer.application)
    return {
        "CONN": connection_name(one.number),
        **dict.fromkeys(grammar.CONN_SHOWS, BLANK),
        "EXTCONN": external_name(manager),
        "ASTATE": "NONE",
        "PID": process[1] if process else str(peer.process or "") or BLANK,
        "TID": "*",
        "APPLTAG": BLANK if process else peer.application or BLANK,
        "APPLTYPE": "USER" if one.number else "SYSTEM",
        "CHANNEL": BLANK if peer.channel == LOCAL else peer.channel or BLANK,  # as in IBM MQ: it comes by none
        "CONNAME": peer.address or BLANK,
        "USERID": peer.user or BLANK,
    }


def _unit(manager: "QueueManager", unit: TransactionInfo | None) -> dict[str, str]:
    """The unit of work of a connection, as DISPLAY CONN shows it."""
    xid = unit.xid if unit is not None else None
    began, logged = (unit.started, unit.log_started) if unit is not None else (0, 0)
    return {
        "UOWLOG": _extent(manager, unit.first_lsn if unit is not None else 0),
        "UOWSTDA": qmstatus.moment(began)[0],
        "UOWSTTI": qmstatus.moment(began)[1],
        "UOWLOGDA": qmstatus.moment(logged)[0],
        "UOWLOGTI": qmstatus.moment(logged)[1],
        "URTYPE": "XA" if xid is not None else "QMGR",
        "EXTURID": f"XA_FORMATID[{xid.format_id if xid else ''}] XA_GTRID[{xid.gtrid.hex().upper() if xid else ''}] "
        f"XA_BQUAL[{xid.bqual.hex().upper() if xid else ''}]",
        "QMURID": f"0.{unit.number if unit is not None else 0}",
        "UOWSTATE": "NONE" if unit is None else "PREPARED" if unit.state is UowState.PREPARED else "ACTIVE",
    }


def _extent(manager: "QueueManager", lsn: int) -> str:
    """The extent of a linear log that holds this LSN."""
    log = manager.config.log
    linear = lsn and log.log_type is LogType.LINEAR
    return file_name(linear_number(lsn // log.extent_bytes)) if linear else BLANK


def handles(manager: "QueueManager") -> Iterator[Fields]:
    """DISPLAY QSTATUS TYPE(HANDLE): who uses which queue.

    None is opened here, so these are the units of work that have put to it or got from it.
    """
    used = _used_by_units(manager)
    for one in manager.connections():
        for unit in one.units:
            for name, (puts, gets) in sorted(used.get(unit.number, {}).items()):
                of_unit = _unit(manager, unit)
                yield {
                    "QUEUE": name,
                    "TYPE": "HANDLE",
                    **_connection(manager, one),
                    "BROWSE": "NO",
                    "HSTATE": "ACTIVE",
                    "INPUT": "SHARED" if gets else "NO",
                    "INQUIRE": "NO",
                    "OUTPUT": "YES" if puts else "NO",
                    "SET": "NO",
                    **{word: of_unit[word] for word in ("QMURID", "URTYPE", "UOWSTATE")},
                    "URID": of_unit["EXTURID"],
                }


def connection_handles(manager: "QueueManager") -> Iterator[Fields]:
    """DISPLAY CONN TYPE(HANDLE): which queue each connection uses, as in `handles`."""
    for one in handles(manager):
        options = {"MQOO_INPUT_SHARED": one["INPUT"] != "NO", "MQOO_OUTPUT": one["OUTPUT"] != "NO"}
        yield {
            "CONN": one["CONN"],
            "TYPE": "HANDLE",
            "EXTCONN": one["EXTCONN"],
            "OBJNAME": one["QUEUE"],
            "OBJTYPE": "QUEUE",
            "HSTATE": one["HSTATE"],
            "OPENOPTS": ",".join(option for option, used in options.items() if used),
            "QMURID": one["QMURID"],
        }


def _used_by_units(manager: "QueueManager") -> dict[int, dict[str, tuple[int, int]]]:
    """For each unit of work the queues that it has used, with the messages it has put there and got from there."""
    used: dict[int, dict[str, tuple[int, int]]] = {}
    with manager._engine.lock:
        for unit in manager._engine.state.uows:
            of_unit = used.setdefault(unit.number, {})
            for run in unit.puts:
                puts, gets = of_unit.get(run.queue.name, (0, 0))
                of_unit[run.queue.name] = puts + len(run.heads), gets
            for queue, _ in unit.gets:
                puts, gets = of_unit.get(queue.name, (0, 0))
                of_unit[queue.name] = puts, gets + 1
    return used
