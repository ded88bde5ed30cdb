"""Every error that petctl raises on purpose. Standard library only: the agent uses this file too.

    PetctlError                 something went wrong and the sentence says what to do
    |-- UsageError              the user's words were wrong (exit code 2)
    |   |-- SpecError           ... in a job file or job description; names the field and its place
    |   `-- NotFound            ... they name a job, node or secret that does not exist
    |-- ProtocolError           a peer sent bytes that make no sense; its connection is dropped
    |   `-- AuthError           ... or could not prove that it knows the job's token
    |-- NoRoom                  the disk is full (an OSError too, for callers who can do without the file)
    |-- Unreachable             a coordinator does not answer (the platform's fault, or it is being replaced)
    |-- StoreError              an object store or a transfer failed (exit code 1)
    |   |-- NoSuchPlace         ... the bucket, container, object or folder does not exist (4)
    |   |-- Refused             ... the key is wrong, the token has expired, or it may not do that (5)
    |   |-- StoreUnreachable    ... nobody answers at its endpoint (6)
    |   `-- Damaged             ... what arrived is not what was sent (7)
    `-- InternalError           petctl's own fault (exit code 70)

The type says whose fault it is; the message says what happened, to which thing, and what to do next. `code` is the exit
code of the command line. Expected errors are shown without a traceback.
"""

import errno


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


def is_no_room(error: OSError) -> bool:
    """Whether it is the disk, or the user's share of it, that is full."""
    return isinstance(error, NoRoom) or error.errno in (errno.ENOSPC, errno.EDQUOT)


class Unreachable(PetctlError):
    """A coordinator does not answer."""


class StoreError(PetctlError):
    """An object store, or a transfer to or from one, failed."""


class NoSuchPlace(StoreError):
    """The bucket, container, object or folder does not exist."""

    code = 4


class Refused(StoreError):
    """The store does not accept the credentials, or not for this."""

    code = 5


class StoreUnreachable(StoreError):
    """Nobody answers at the store's endpoint."""

    code = 6


class Damaged(StoreError):
    """What arrived is not what was sent."""

    code = 7


class InternalError(PetctlError):
    """petctl's own fault."""

    code = 70


class GivenUp(Exception):
    """The node is leaving, or the user does not want to wait: nobody needs the outcome any more."""
