"""How a queue manager stands that nobody runs: what its control file, its checkpoint and its log say. Only reads.

The mapping is that of `published.py`. What only a running one knows is None: how its writes went and, unless it ended
in order with nothing in doubt, how many messages its queues hold.
"""

import json
from typing import Any

import attrs

from logger import at_rest
from logger.clock import Clock
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, Disk
from logger.extent import DATA
from logger.space import Space
from logger.whole_files import read_whole
from qmgr import ini
from qmgr.locations import Location
from qmgr.published import (
    FORMAT,
    INACTIVE,
    Picture,
    describe_extents,
    describe_inactive,
    describe_space,
    file_systems,
    jsonable,
    time_of,
)
from qmgr.segments import from_description
from recovery.checkpoint import Checkpoint, read_files
from recovery.dump import OpenUnit, open_units
from recovery.errors import RecoveryError

STOPPED = "stopped"  # not in order: the next start recovers it


def picture(disk: Disk, clock: Clock, location: Location) -> Picture:
    """How it stands. Raises IniError, LogDamaged, OSError."""
    config = ini.parse(read_whole(disk, location.ini), location.ini).log
    state, end, units, since = open_units(disk, config.path)
    clean = state.clean_end == end
    checkpoint, catalogue = _checkpoint(disk, location, state)
    last = checkpoint is not None and checkpoint.clean and checkpoint.lsn == state.checkpoint
    counted = clean and not units and last
    lines = [json.loads(line) for line in catalogue]
    objects = [_queue(line, counted=counted) for line in lines if "segments" in line]  # the others are no queues
    transactions = [_unit(unit) for unit in units]
    depths = [one["depth"] for one in objects]
    return {
        "format": FORMAT,
        "name": location.name,
        "state": "ended" if clean else STOPPED,
        "process": "",
        "published": clock.wall_us(),
        "started": 0,
        "data_dir": location.data_dir,
        "file_systems": file_systems(disk, location.data_dir, config.path),
        "log": _log(disk, config, state, end, media_lsn(lines)),
        "log_sync": config.sync.value,
        "checkpoints": 0,
        "checkpoint_seconds": 0.0,
        "units_of_work": len(units),
        "in_doubt": sum(unit.xid is not None for unit in units),
        "queues": len(objects),
        "messages": None if None in depths else sum(depths),
        "restart": None,
        "transactions": transactions,
        "holder": next(iter(transactions), None),
        "objects": objects,
        "records": since,
    }


def _checkpoint(disk: Disk, location: Location, state: ControlState) -> tuple[Checkpoint | None, list[bytes]]:
    """The newest one that can be read, and its lines; there may be none, and the log says much without."""
    try:
        return read_files(disk, location.data_dir, state.log_id)[0]
    except RecoveryError:
        return None, []


def media_lsn(lines: list[dict[str, Any]]) -> int:
    """The oldest LSN that media recovery needed at the checkpoint with this catalogue; 0: there was no image."""
    places = [line["image"][2] for line in lines if line.get("image")]
    return min([*places, *(line["catalog"] for line in lines if line.get("catalog"))], default=0)


def _log(disk: Disk, config: LogConfig, state: ControlState, end: int, media: int) -> Picture:
    """What `Log.status` would say after a start; `end` is the LSN behind the last record."""
    size = state.extent_bytes
    config = attrs.evolve(config, file_pages=size // PAGE)
    extents = [(number, sequence, time_of(disk, config.path, number)) for number, sequence in state.extents]
    linear = state.log_type is LogType.LINEAR
    needed, needed_for_media = state.head // size, media // size or None if linear else None
    extents += describe_inactive(disk, config.path, at_rest.inactive(disk, config.path, state), needed_for_media)
    space = Space(size, config.max_files, len(state.extents), needed * size)
    described = describe_extents(extents, needed, needed_for_media)
    found: dict[str, Any] = describe_space(space)
    if linear:
        wanted = sum(one["class"] == INACTIVE for one in described)
        found |= {
            "media": media or state.head,
            "media_bytes": wanted * (size + DATA),
            "reuse_bytes": len(at_rest.reusable(disk, config.path)) * (size + DATA),
        }
    return found | {
        "config": jsonable(config),
        "files": len(state.extents),
        "file_numbers": [one["number"] for one in described if one["sequence"] >= needed],
        "epoch": state.epoch,
        "head": state.head,
        "tail": end,
        "durable": end,
        "checkpoint": state.checkpoint,
        "used": space.used(end),
        "peak": space.used(end),
        "writes": None,
        "extent_bytes": size,
        "extents": described,
    }


def _unit(unit: OpenUnit) -> dict[str, Any]:
    return {
        "number": unit.number,
        "state": "active" if unit.xid is None else "prepared",
        "xid": None if unit.xid is None else jsonable(unit.xid),
        "started": 0,
        "log_started": unit.logged,
        "first_lsn": unit.first_lsn,
        "puts": None,
        "gets": None,
        "owner": "",
    }


def _queue(fields: dict[str, Any], *, counted: bool) -> dict[str, Any]:
    """A queue of the checkpoint. `counted`: that is the last one, and what its segments hold is all that it holds."""
    return {
        "name": fields["definition"]["name"],
        "depth": sum(len(from_description(one)) for one in fields["segments"]) if counted else None,
        "uncommitted": 0 if counted else None,
        "memory": 0,
        "max_depth": fields["definition"]["max_depth"],
        "damaged": fields["damaged"],
    }
