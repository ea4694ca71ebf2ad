"""What the client library raises, as our errors: with the server's address, without passwords."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as client

from tessera.errors import CorruptionError, SettingsError, UnavailableError

_REFUSED_ACCESS = (client.AuthenticationError, client.AuthorizationError, client.NoPermissionError)

_UNREACHABLE = (
    client.ConnectionError,
    client.TimeoutError,
    client.ClusterError,
    client.RedisClusterException,
    OSError,
    TimeoutError,
)

_PASSING = {
    "OOM": "it is out of memory: raise maxmemory or remove data",
    "READONLY": "it is a replica: name the primary, or wait for the failover",
    "LOADING": "it is loading its data: wait",
    "BUSY": "it is busy with a script: wait",
    "MISCONF": "it cannot write its data to disk: look at its log",
    "NOREPLICAS": "too few replicas are connected: look at its replication",
    "MASTERDOWN": "its link to the primary is down: wait for the failover",
    "CLUSTERDOWN": "the cluster is down: look at CLUSTER INFO",
    "TRYAGAIN": "a slot is being moved: wait",
    "UNKILLABLE": "it is busy with a script: wait",
}
"""Codes of refusals that pass by themselves or once an operator acts; nothing was written."""


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Raise UnavailableError, SettingsError or CorruptionError for what the client raises within.

    An UnavailableError leaves open whether a write was applied: its answer may be what was lost.
    """
    try:
        yield
    except _REFUSED_ACCESS as error:
        raise SettingsError(
            f"{address} refused access ({error}): check the user, password and permissions in --redis"
        ) from error
    except client.ResponseError as error:
        code = _code(error)
        if code in _PASSING:
            raise UnavailableError(f"{address} refused a command: {_PASSING[code]}") from error
        if code == "WRONGTYPE":
            raise CorruptionError(
                f"{address}: a key holds another type than ours; something else wrote to it: "
                "use another namespace"
            ) from error
        raise
    except AttributeError as error:
        if not _raised_by_client(error):
            raise
        raise UnavailableError(
            f"{address}: the connection was closed while it was used: try again"
        ) from error
    except _UNREACHABLE as error:
        raise UnavailableError(
            f"{address} does not answer ({_reason(error)}): check that the server runs, or give --redis"
        ) from error


def _raised_by_client(error: Exception) -> bool:
    """Whether the client itself failed: a cluster's closes idle connections when it loses a node, and a task
    that has just taken one then finds no writer in it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return frames is not None and str(frames.tb_frame.f_globals.get("__name__", "")).startswith("redis.")


def _code(error: client.ResponseError) -> str:
    """The code of the server's error. Before Redis 7 a script's error hides it behind ``: -``."""
    text = str(error)
    for code in (
        error.status_code or "",
        text.partition(" ")[0],
        text.rpartition(": -")[2].partition(" ")[0],
    ):
        if code in _PASSING or code == "WRONGTYPE":
            return code
    return ""


def _reason(error: Exception) -> str:
    """What the client says, without the command it names in a pipeline: that may hold a document's bytes."""
    return str(error).rpartition("caused error: ")[2] or type(error).__name__
