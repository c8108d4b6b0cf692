"""Where the files of a queue manager are: <data>/qmgrs/<QM>/ and <log>/<QM>/."""

import attrs

from logger.disk import Disk
from logger.posix_disk import Path, home_path, user_data_path
from qmgr.errors import Mistake, Reason, quoted
from qmgr.objects import check_name, mangle

VARIABLE = "QMGR_DATA_PATH"


@attrs.frozen(kw_only=True)
class Location:
    """The directories of one queue manager; `log_dir` is where it is made, qm.ini says where it is."""

    name: str
    data_root: str
    data_dir: str
    log_dir: str

    @property
    def ini(self) -> str:
        return f"{self.data_dir}/qm.ini"

    @property
    def deleted_ini(self) -> str:
        """The name that qm.ini has while the queue manager is being deleted."""
        return f"{self.data_dir}/qm.ini.deleted"

    @property
    def unfinished_ini(self) -> str:
        """The name that qm.ini has while a recovery to a point in time builds the queue manager."""
        return f"{self.data_dir}/qm.ini.unfinished"

    @property
    def lock(self) -> str:
        return f"{self.data_dir}/qm.lock"

    @property
    def published(self) -> str:
        """The file where the owner says how the queue manager stands; see `published.py`."""
        return f"{self.data_dir}/status.json"

    @property
    def socket(self) -> str:
        """Where the daemon listens for clients of this machine."""
        return f"{self.data_dir}/qm.sock"

    @property
    def users(self) -> str:
        """The file with those who may connect over a network; see `users.py`."""
        return f"{self.data_dir}/users.json"

    @property
    def queues(self) -> str:
        return f"{self.data_dir}/queues"

    @property
    def errors(self) -> str:
        return f"{self.data_dir}/errors"


def data_root(data_path: Path | None = None) -> str:
    """The data path: the argument, else QMGR_DATA_PATH, else the platform's directory for user data. Raises Mistake."""
    root = home_path(data_path) if data_path is not None else user_data_path(VARIABLE, "qmgr")
    if not root:
        raise Mistake(
            f"this user has no home directory where queue managers could be: set {VARIABLE} to a directory",
            reason=Reason.OPTIONS_ERROR,
        )
    return root


def can_be(path: object) -> bool:
    """Could the system take the path? A lone surrogate has no bytes, unless it stands for one (surrogateescape)."""
    try:
        return isinstance(path, str) and path.encode("utf-8", "surrogateescape") != b"" and "\0" not in path
    except UnicodeEncodeError:
        return False


def find(
    name: str, data_path: Path | None = None, *, log_path: Path | None = None, called: str = "data_path"
) -> Location:
    """Where the queue manager is, or would be. Raises NameError_ for a name that can't be one.

    `called`: the argument of the caller that `data_path` was.
    """
    check_name(name, "queue manager", Reason.Q_MGR_NAME_ERROR)
    for what, path in ((called, data_path), ("log_path", log_path)):
        text = path if isinstance(path, str) else getattr(path, "__fspath__", str)()
        if (path is not None or what == "into") and not can_be(text):  # only `into` has no default
            raise Mistake(f"{what} is the path of a directory, not {quoted(path)}", reason=Reason.OPTIONS_ERROR)
    root = data_root(data_path)
    logs = home_path(log_path) if log_path is not None else f"{root}/log"
    return Location(
        name=name, data_root=root, data_dir=f"{root}/qmgrs/{mangle(name)}", log_dir=f"{logs}/{mangle(name)}"
    )


def running(location: Location, disk: Disk) -> str | None:
    """Who owns the queue manager now, or None."""
    return disk.locked_by(location.lock)
