"""Every error that petctl raises on purpose. Standard library only: the agent uses this file too.

    PetctlError                 something went wrong and the sentence says what to do
    |-- UsageError              the user's words were wrong (exit code 2)
    |   |-- SpecError           ... in a job file or job description; names the field and its place
    |   `-- NotFound            ... they name a job, node or secret that does not exist
    |-- ProtocolError           a peer sent bytes that make no sense; its connection is dropped
    |   `-- AuthError           ... or could not prove that it knows the job's token
    |-- NoRoom                  the disk is full (an OSError too, for callers who can do without the file)
    |-- Unreachable             a coordinator does not answer (the platform's fault, or it is being replaced)
    `-- InternalError           petctl's own fault (exit code 70)

The type says whose fault it is; the message says what happened, to which thing, and what to do next. `code` is the exit
code of the command line. Expected errors are shown without a traceback.
"""


class PetctlError(Exception):
    """Base of every error meant for the user's eyes."""

    code = 1


class UsageError(PetctlError):
    """The user's words were wrong."""

    code = 2


class SpecError(UsageError):
    """A job description is wrong; the message names the field, its place and the nearest right name."""


class NotFound(UsageError):
    """A job, node or secret of that name does not exist."""


class ProtocolError(PetctlError):
    """A peer sent bytes that make no sense."""


class AuthError(ProtocolError):
    """A peer could not prove that it knows the job's token."""


class NoRoom(PetctlError, OSError):
    """The disk, or the user's share of it, is full."""


class Unreachable(PetctlError):
    """A coordinator does not answer."""


class InternalError(PetctlError):
    """petctl's own fault."""

    code = 70
