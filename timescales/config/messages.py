"""The line for an error that the user can fix: of this package, of the system, and of what Hydra finds in a file.

What is wrong with a command line is named where it is read (`command_line.py`, `compose.py`, `check.py`). Here is what
becomes of errors that others raise. Imports no torch.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from timescales.config import folders
from timescales.errors import ConfigError

# The system's error numbers for a run directory that cannot be made or written, or a file that cannot be read.
NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
NO_PLACE |= {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


def one_line(error: BaseException) -> str | None:
    """The line for an error that the user can fix; None for any other, which is a bug."""
    line = next(filter(None, map(_line, chain(error))), None)
    if line is None and isinstance(error, HydraException | OmegaConfBaseException):
        line = " ".join(str(error).split())
    return line and " ".join(line.splitlines())  # what was typed may have several lines


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error after its causes, where it is Hydra's or OmegaConf's: such an error may wrap one of ours."""
    wraps = isinstance(error, HydraException | OmegaConfBaseException)
    if wraps and (cause := error.__cause__ or error.__context__):
        yield from chain(cause)
    yield error


def _line(error: BaseException) -> str | None:
    """The line for one error alone."""
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, OSError) and error.filename and error.errno in NO_PLACE:
        why = f"{error.filename}: {error.strerror}"
        return f"{why}; choose another place with run_dir=DIR or data_root=DIR, or make room and give access there"
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, MissingConfigException):  # of a file that names another one in its defaults
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return folders.no_such(group, name) if group else None
    return None
