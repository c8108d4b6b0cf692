"""What the packages below raise, as callers of the API know it."""

import contextlib
import errno
from collections.abc import Iterator

from logger.disk_errors import NO_SPACE, OTHER_THAN_FILE, retry_advice
from logger.errors import LaterFormat, LogDamaged, LogError
from qmgr.errors import OWNER_ADVICE, Damaged, Reason, Unavailable
from qmgr.threads import NO_THREAD
from recovery.errors import RecoveryError

MORE_THREADS = "raise the limit of processes (ulimit -u), or of memory,"
NO_PLACE = errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG  # for a directory


@contextlib.contextmanager
def translated(name: str, done: str) -> Iterator[None]:
    """What the packages below say, as callers know it: queue manager `name` can't be `done`."""
    try:
        yield
    except (LogDamaged, RecoveryError) as exc:
        mends = done == "started" and not isinstance(exc, LaterFormat)
        way = f"; `qm repair --check -m {name}` says what can be mended" if mends else ""
        raise Damaged(f"queue manager {name!r} can't be {done}: {exc}{way}", name=name) from exc
    except LogError as exc:
        raise Unavailable(f"queue manager {name!r} can't be {done}: {exc}", name=name) from exc
    except RuntimeError as exc:
        if NO_THREAD not in str(exc):
            raise
        text = f"queue manager {name!r} can't be {done}: the system has no thread for it ({exc}); {MORE_THREADS} or"
        text += " have it do without (background=False)"
        raise Unavailable(text, reason=Reason.STORAGE_NOT_AVAILABLE, name=name) from exc
    except PermissionError as exc:
        what = exc.filename or exc.strerror or exc
        text = f"queue manager {name!r} can't be {done}: this user may not use {what}; {OWNER_ADVICE}"
        text += ", or give another data path, or log path" if done == "created" else ""
        raise Unavailable(text, reason=Reason.NOT_AUTHORIZED, name=name) from exc
    except OSError as exc:
        reason = Reason.STORAGE_MEDIUM_FULL if exc.errno in NO_SPACE else Reason.FILE_SYSTEM_ERROR
        way = retry_advice(exc)
        if done == "created" and exc.errno in NO_PLACE:
            way = "; give a data path, and a log path, where directories can be made"
        elif exc.errno in OTHER_THAN_FILE:
            way = "; that is where a file belongs: move it away, and try again"
        raise Unavailable(f"queue manager {name!r} can't be {done}: {exc}{way}", reason=reason, name=name) from exc
