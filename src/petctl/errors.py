"""Every error that petctl raises on purpose. Standard library only: the agent uses this file too.

The drawing has all of them: the exit code of the command line, whose fault it is, and for those that are not defined
here the module below petctl.

    PetctlError                     1   any        something went wrong; the base of all
    |-- UsageError                  2   input      the user's words were wrong
    |   |-- SpecError               2   input      ... in a job file or job description
    |   |   `-- FieldError          2   input      ... in fields of it, which it names (job.spec.problems)
    |   |-- NotFound                2   input      ... they name a job, node or secret that does not exist
    |   |   `-- Missing             3   input      ... no resource of Batch AI's (compat.batchai.service.resource_store)
    |   `-- InUse                   2   input      what is to be removed is needed by a running job (clusters.base)
    |-- AlreadyExists               1   input      there is a job of this id (clusters.base)
    |-- AlreadyThere                1   input      the name is taken (compat.batchai.service.resource_store)
    |-- Malformed                   1   input      a bad ElasticJob (clusters.kubernetes.operator.apply)
    |-- ProtocolError               1   platform   a peer sent bytes that make no sense; its connection is dropped
    |   `-- AuthError               1   platform   ... or could not prove that it knows the job's token
    |-- NoRoom                      1   platform   the disk is full (an OSError too, for callers that can go on)
    |-- Unreachable                 1   platform   a coordinator does not answer: dead, cut off or being replaced
    |-- StepBlocked                 1   platform   the operator cannot act (clusters.kubernetes.operator.apply)
    |-- LoginFailed                 5   platform   no credentials made for the kubeconfig (kube.credential_plugin)
    |-- BadCode                     1   platform   a code archive is not what its name says (agent.data.code)
    |-- StoreError                  1   platform   an object store or a transfer failed
    |   |-- NoSuchPlace             4   input      ... the bucket, container, object or folder does not exist
    |   |   `-- NoSuchBucket        4   input      ... the bucket or container itself (storage.core.store_errors)
    |   |-- Refused                 5   input      ... the key is wrong or expired, or does not permit that
    |   |-- StoreUnreachable        6   platform   ... no process answers at its endpoint
    |   |-- Damaged                 7   platform   ... what arrived is not what was sent
    |   `-- BadAnswer               1   platform   ... what answers is no object store (storage.core.answers)
    |-- KubernetesError             1   platform   Kubernetes failed (kube.failures, as all below)
    |   |-- NoSuchObject            4   input      ... the object, its namespace or its kind does not exist
    |   |-- ObjectExists            1   input      ... there is an object of this name
    |   |-- Conflict                1   platform   ... another client has changed the object meanwhile
    |   |-- Gone                    1   platform   ... a version is too old to go on from: list again
    |   |-- Invalid                 1   input      ... the server does not accept the object or the request
    |   |-- NotRunning              1   platform   ... the container does not run
    |   |   `-- NotStarted          1   platform   ... the container does not run yet
    |   |-- Forbidden               5   input      ... the credentials do not permit it
    |   |   `-- QuotaExceeded       5   platform   ... the namespace's quota does not permit it
    |   |-- Unauthorised            5   input      ... the server does not accept the credentials
    |   |-- ServerUnreachable       6   platform   ... no server answers, or it is overloaded
    |   `-- CommandFailed           1   platform   ... a command in a pod could not be run
    `-- InternalError              70   petctl     petctl's own fault

The user's own program has no error here: how its workers failed is a job's outcome, with a cause (`causes.py`).

The message says what happened, to which thing, and what to do next. Expected errors are shown without a traceback.
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


def no_room_for(what: object) -> NoRoom:
    """The error for a file that cannot be written."""
    return NoRoom(f"cannot write {what}: no space left on its disk; free space and try again")


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
