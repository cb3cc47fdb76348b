"""The hub's failures, each as one sentence that says what to do; no message ever holds a token."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from anisotropy.errors import UnknownNameError, UserError
from anisotropy.models.loading import one_line
from anisotropy.models.records import nearest

_ELSEWHERE = (
    "; hub models and corpora need a network or a filled cache, the miniatures (`anisotropy models`) and the embedded "
    "corpus need neither"
)
_STORAGE = {
    errno.ENOSPC: "the disk is full; free some, or move the hub's cache to another disk with HF_HOME",
    errno.EDQUOT: "your disk quota is used up; free some, or move the hub's cache to another disk with HF_HOME",
    errno.EACCES: "the hub's cache cannot be written to; give yourself the permission, or move it with HF_HOME",
    errno.EPERM: "the hub's cache cannot be written to; give yourself the permission, or move it with HF_HOME",
    errno.EROFS: "the hub's cache is on a read-only disk; move it with HF_HOME",
    errno.ENOTDIR: "the hub's cache is not a folder; set HF_HOME to one",
}


def unanswered(error: BaseException) -> bool:
    """Whether the hub gave no answer: then what the cache holds is the best there is."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    causes = list(_causes(error))
    if any(isinstance(cause, OSError) and cause.errno in _STORAGE for cause in causes):
        return False
    if status := next((one.response.status_code for one in causes if isinstance(one, HfHubHTTPError)), None):
        return status == 429 or status >= 500
    silent = (OfflineModeIsEnabled, LocalEntryNotFoundError, ConnectionError, TimeoutError)
    return any(isinstance(cause, silent) or _of_http_client(cause) for cause in causes)


def hub_error(
    repository: str, error: BaseException, revision: str | None = None, known: Iterable[str] = ()
) -> UserError:
    """Turn a failure of the hub's library, bare or wrapped, into one sentence.

    Args:
        repository: as ``owner/name``.
        error: what was raised.
        revision: the branch, where one was asked for.
        known: names of repositories that exist, for a name that does not.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"{repository}@{revision}" if revision else repository
    causes = list(_causes(error))
    near = [] if repository in (known := list(known)) else nearest(repository, known)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    # A gated repository counts as one that was not found, so it is asked for first.
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return UserError(f"{where} is gated: accept its terms on the hub and log in with `hf auth login`")
    if any(isinstance(cause, RevisionNotFoundError) for cause in causes):
        return UnknownNameError(f"{where}: no such revision on the hub")
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        said = "no such repository on the hub, or it is private and you are not logged in"
        return UnknownNameError(f"{where}: {said}{hint}")
    for cause in causes:
        if isinstance(cause, HfHubHTTPError) and cause.response is not None:
            return UserError(_answered(where, cause.response.status_code))
        if isinstance(cause, OSError) and cause.errno in _STORAGE:
            return UserError(f"{where} cannot be stored: {_STORAGE[cause.errno]}")
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
        return UserError(
            f"{where} is not in the cache, and the hub is switched off (HF_HUB_OFFLINE){hint or _ELSEWHERE}"
        )
    network = (LocalEntryNotFoundError, ConnectionError, TimeoutError)
    for cause in causes:
        if isinstance(cause, network) or _of_http_client(cause):
            return UserError(f"{where} cannot be reached ({type(cause).__name__}){hint or _ELSEWHERE}")
    return UserError(f"{where} cannot be loaded ({one_line(error)})")


def _answered(where: str, status: int) -> str:
    if status == 429:
        return f"{where}: the hub limits how often it is asked (429); wait some minutes, or log in with `hf auth login`"
    if status in (401, 403):
        return f"{where}: the hub refuses access ({status}); log in with `hf auth login`, or renew your token"
    return f"{where}: the hub answered with error {status}; try again later"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _of_http_client(error: BaseException) -> bool:
    # The client's own classes derive from Exception, and which client it is changes with the hub library's version.
    return type(error).__module__.partition(".")[0] in {
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "requests",
        "urllib3",
    }
