"""What to say of a queue manager that has no qm.ini: it never was, is being deleted or built, or is away."""

from logger.disk import Disk
from logger.whole_files import read_whole
from qmgr import mqsini
from qmgr.errors import IniError, Reason, Unavailable, command_in
from qmgr.locations import Location
from recovery import checkpoint
from recovery.checkpoint import decode_file


def lacks_ini_only(disk: Disk, location: Location) -> bool:
    """Is this a queue manager that has been started, and has lost its qm.ini?

    It has queues, or a checkpoint with an epoch: an interrupted creation leaves no queues, and epoch 0.
    """
    for path in (f"{location.data_dir}/{name}" for name in (checkpoint.NAME, checkpoint.PREVIOUS)):
        found = decode_file(read_whole(disk, path)) if disk.exists(path) else None
        if found is not None and found[0].epoch:
            return True
    return disk.exists(location.queues) and bool(disk.list(location.queues))


def unknown(disk: Disk, location: Location) -> Unavailable:
    """What to say of a queue manager that has no qm.ini."""
    text = f"there is no queue manager {location.name!r} in {location.data_root}; create it first (crtmqm)"
    if not disk.exists(location.data_root):
        text = (
            f"there is no queue manager {location.name!r}: the data path {location.data_root} is not there; mount its "
            f"file system, name another one (QMGR_DATA_PATH), or create the queue manager first (crtmqm)"
        )
    text = remains(disk, location) or text
    return Unavailable(text, reason=Reason.Q_MGR_NAME_ERROR, name=location.name)


def remains(disk: Disk, location: Location) -> str:
    """What there is of a queue manager that has no qm.ini, and what to do; "" where there is nothing."""
    if what := half(disk, location):
        return what
    if lacks_ini_only(disk, location):
        return f"{location.ini} is missing; put it back, or have it made anew (qm repair -m {location.name})"
    return away(disk, location)


def away(disk: Disk, location: Location) -> str:
    """What to say of a queue manager that mqs.ini lists, and whose directory is missing or empty; "" of any other."""
    if disk.exists(location.data_dir) and disk.list(location.data_dir):
        return ""
    listing = f"{location.data_root}/mqs.ini"
    try:
        entry = mqsini.read(disk, listing).find(location.name)
    except IniError:  # reported by whoever needs what it says
        return ""
    if entry is None:
        return ""
    return (
        f"queue manager {location.name!r} is listed in {listing}, but {location.data_dir} is "
        f"{'empty' if disk.exists(location.data_dir) else 'not there'}; mount its file system or bring it back, or, if "
        f"it is gone for good, take its QueueManager stanza out of {listing}"
    )


def half(disk: Disk, location: Location) -> str:
    """What to say of a queue manager whose deletion or recovery was interrupted; "" of any other."""
    where = f"queue manager {location.name!r} in {location.data_root}"
    if disk.exists(location.deleted_ini):
        if (holder := disk.locked_by(location.lock)) is not None and command_in(holder) == "dltmqm":
            return f"{where} is being deleted: {holder} holds it"
        return f"the deletion of {where} was interrupted; repeat it (dltmqm)"
    return unfinished(disk, location)


def unfinished(disk: Disk, location: Location) -> str:
    """What to say of a queue manager that a recovery to a point in time has not built to the end; "" of any other."""
    if not disk.exists(location.unfinished_ini):
        return ""
    return (
        f"the recovery of queue manager {location.name!r} into {location.data_root} was interrupted; repeat it "
        f"(qm recover-to), or remove {location.data_dir} and {location.log_dir}"
    )
