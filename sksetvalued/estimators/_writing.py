"""Files that are written whole or not at all."""

import contextlib
import errno
import glob
import os
import secrets
import time
import zlib

try:
    import fcntl
except ImportError:  # On Windows, which does not remove files that are open.
    fcntl = None

#: What a file system without locks answers, such as Lustre or shares of Windows.
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
#: How often something that Windows refuses is tried, and the seconds in between.
TRIES, PAUSE = 20, 0.1


def write_whole(path, data):
    """Write bytes to a file, which holds either them or what it held before.

    Links are followed. A new file gets the mode of the umask, one that is there keeps its own.

    Parameters
    ----------
    path : path-like
    data : bytes

    Raises
    ------
    OSError
        With the path, when it cannot be written.
    """
    name = os.fsdecode(path)
    try:
        target = _checked_target(name)
        mode = os.stat(target).st_mode if os.path.exists(target) else None
        stem = _stem(target)
        _remove_leftovers(stem)
        with _locked_file(stem) as (file, partial):
            if mode is not None:
                os.chmod(partial, mode & 0o7777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()
            _patiently(os.replace, partial, target)
    except ValueError as error:  # A name that the system cannot hold.
        raise OSError(errno.EINVAL, str(error), name) from error
    except OSError as error:
        if error.filename == name:
            raise
        text = error.strerror
        if error.errno == errno.EBUSY:
            text += " (a file that is mounted by itself cannot be replaced: mount its folder)"
        raise OSError(error.errno, text, name) from error


def remove_whole(path):
    """Remove a file that :func:`write_whole` wrote, and what killed processes left of it."""
    target = os.path.realpath(path)
    _remove_leftovers(_stem(target))
    with contextlib.suppress(FileNotFoundError):
        _patiently(os.remove, target)


def _patiently(change, *paths):
    """Change a file that somebody may be reading, which Windows refuses until he is done."""
    for _ in range(TRIES if fcntl is None else 0):
        with contextlib.suppress(PermissionError):
            return change(*paths)
        time.sleep(PAUSE)
    return change(*paths)


def _checked_target(name):
    """Return where to write, links followed."""
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "a folder stands in the place of the file", name)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            errno.ENOENT, f"there is no folder {folder!r} to write to; make it first", name
        )
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "it is there, and is no file", name)
    return target


def _stem(target):
    """Return what the names of partial files begin with; the name itself may be too long."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{zlib.crc32(os.fsencode(name)):08x}")


@contextlib.contextmanager
def _locked_file(stem):
    """Yield a new file and its path; it is locked as long as this process lives."""
    while True:
        partial = f"{stem}-{secrets.token_hex(4)}.part"
        file = open(partial, "xb")  # noqa: SIM115
        try:
            with file:  # Windows removes no open file.
                _lock(file)
                # Another process may have taken it for a leftover before it was locked.
                if os.path.exists(partial):
                    yield file, partial
                    return
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)


def _lock(file):
    """Lock a file, where that can be done: nobody then takes it for a leftover."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _remove_leftovers(stem):
    """Remove what processes left that were killed while they wrote."""
    for partial in glob.glob(f"{glob.escape(stem)}-*.part"):
        with contextlib.suppress(OSError):
            if fcntl is None:
                os.remove(partial)
                continue
            with open(partial, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(partial)
