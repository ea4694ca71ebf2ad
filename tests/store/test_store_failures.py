"""What the client raises, as our errors; and blobs in memory that live as long as in Redis."""

from __future__ import annotations

import pytest
from backends import SHARD
from redis import exceptions as client
from redis.asyncio import Connection

from tessera.errors import CorruptionError, SettingsError, StagingError, TesseraError, UnavailableError
from tessera.store.base import Commit
from tessera.store.failures import translated
from tessera.store.memory import MemoryStore

OLD_SCRIPT_ERROR = "Error running script (call to f_1a): @user_script:9: -OOM command not allowed"


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (client.OutOfMemoryError("full", status_code="OOM"), UnavailableError, "raise maxmemory"),
        (client.ResponseError(OLD_SCRIPT_ERROR), UnavailableError, "raise maxmemory"),
        (client.ReadOnlyError("no", status_code="READONLY"), UnavailableError, "name the primary"),
        (
            client.ResponseError("BUSY Redis is busy running a script."),
            UnavailableError,
            "busy with a script",
        ),
        (client.ResponseError("MISCONF Errors writing to the AOF file"), UnavailableError, "to disk"),
        (client.ClusterDownError("down", status_code="CLUSTERDOWN"), UnavailableError, "cluster is down"),
        (client.BusyLoadingError("loading", status_code="LOADING"), UnavailableError, "does not answer"),
        (client.SlotNotCoveredError("slot"), UnavailableError, "does not answer"),
        (client.TimeoutError(), UnavailableError, r"does not answer \(TimeoutError\)"),
        (OSError("broken pipe"), UnavailableError, "broken pipe"),
        (client.ResponseError("WRONGTYPE Operation against a key"), CorruptionError, "another namespace"),
        (client.NoPermissionError("no", status_code="NOPERM"), SettingsError, "permissions"),
    ],
)
def test_each_failure_says_where_and_what_to_do(
    raised: Exception, expected: type[TesseraError], message: str
) -> None:
    with pytest.raises(expected, match=message) as caught, translated("redis://h:1"):
        raise raised
    assert "redis://h:1" in str(caught.value)
    assert caught.value.retriable == (expected is UnavailableError)


def test_a_failure_in_a_pipeline_shows_no_bytes_of_a_document() -> None:
    error = client.ConnectionError("Command # 1 (SET k secret text) of pipeline caused error: ('hung up',)")
    with pytest.raises(UnavailableError, match="hung up") as caught, translated("redis://h:1"):
        raise error
    assert "secret" not in str(caught.value)


def test_an_error_nobody_foresaw_is_not_hidden() -> None:
    with pytest.raises(client.ResponseError, match="unknown command"), translated("redis://h:1"):
        raise client.ResponseError("unknown command")


async def test_staged_and_replaced_blobs_in_memory_live_ten_minutes() -> None:
    now = 0.0
    store = MemoryStore(clock=lambda: now)
    await store.stage(SHARD, {"kept": b"1", "late": b"2"})
    head = await store.claim(SHARD, ["g1"])
    head = await store.commit(Commit(SHARD, head.fence, head.seq, keep=("kept",)))
    now = 599.0
    assert await store.blobs(SHARD, ["kept", "late"]) == [b"1", b"2"]
    now = 600.0
    assert await store.blobs(SHARD, ["kept", "late"]) == [b"1", None]
    with pytest.raises(StagingError):
        await store.commit(Commit(SHARD, head.fence, head.seq, keep=("late",)))
    await store.commit(Commit(SHARD, head.fence, head.seq, expire=("kept",)))
    now = 1199.0
    assert await store.blobs(SHARD, ["kept"]) == [b"1"]
    now = 1200.0
    assert await store.blobs(SHARD, ["kept"]) == [None]


async def test_a_connection_closed_by_another_task_is_unavailable_and_our_own_slips_are_not() -> None:
    connection = Connection()
    connection._writer = None
    with pytest.raises(UnavailableError, match="closed while it was used"), translated("redis://h:1"):
        await connection._send_packed_command([b""])
    with pytest.raises(AttributeError), translated("redis://h:1"):
        _ = connection.no_such_name
