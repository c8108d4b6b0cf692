"""What an error of the disk says: which can be tried again, and what to do about it, as the end of a sentence."""

import errno

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: beyond the limit for the size of files (ulimit -f)
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
NOT_ALLOWED = (errno.EACCES, errno.EPERM)
RETRYABLE = (*NO_SPACE, *NO_DESCRIPTORS, *NOT_ALLOWED, errno.ENOMEM)  # calls that fail for these can be tried again
OTHER_THAN_FILE = (errno.EISDIR, errno.ELOOP, errno.ESPIPE)  # a directory lies there, a link to itself, a pipe
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, *OTHER_THAN_FILE)  # what lies there is none: no name either, no
# directory that could have it, a link to nothing where a file is to be made


def advice(exc: OSError) -> str:
    """What to do about an error after which nothing is lost, as the end of a sentence."""
    if exc.errno in NO_DESCRIPTORS:
        return "file descriptors have run out: close files, or raise the limit (ulimit -n),"
    if exc.errno in NOT_ALLOWED:
        return "be the user whose it is, or let this one use it,"
    if exc.errno == errno.EFBIG:
        return "raise the limit for the size of files (ulimit -f),"
    if exc.errno == errno.ENOMEM:
        return "the system has no memory for it: give it more,"
    if exc.errno == errno.EROFS:
        return "mount its file system for writing,"
    if exc.errno == errno.ESTALE:  # of a share of another machine's, whose file is another one there now
        return "mount its file system again,"
    if exc.errno in OTHER_THAN_FILE:
        return "a file belongs there: move away what lies in its place,"
    return "free some space" if exc.errno in NO_SPACE else "mend the disk"


def retry_advice(exc: OSError) -> str:
    """The same for any error; "" where no advice is known. A bad disk, or another machine, may have lost something."""
    if exc.errno not in (*RETRYABLE, errno.EIO, errno.EROFS, errno.ESTALE):
        return ""
    comfort = "" if exc.errno in (errno.EIO, errno.ESTALE) else "nothing is lost by that: "
    return f"; {comfort}{advice(exc)} and try again"
