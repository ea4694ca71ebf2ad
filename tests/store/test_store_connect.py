"""URLs, and errors that name the server but no password."""

from __future__ import annotations

from pathlib import Path

import pytest
from backends import SHARD
from servers import free_port, redis_server

from tessera.errors import SettingsError, UnavailableError
from tessera.store.base import ShardId
from tessera.store.connect import connect
from tessera.store.keys import Keys
from tessera.store.memory import MemoryStore

SECRET = "hunter2"


async def test_memory_urls_give_a_store_of_their_own() -> None:
    first, second = connect("memory://"), connect("memory://")
    await first.claim(SHARD, ["g1"])
    assert isinstance(second, MemoryStore)
    assert await second.head(SHARD) is None


async def test_a_unix_socket_and_a_database_number_are_honoured(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with redis_server(tmp_path, "--unixsocket", str(socket)) as server:
        for url in (f"unix://{socket}?db=2", f"{server.url}/2"):
            store = connect(url, "other")
            await store.claim(SHARD, ["g1"])
            await store.close()
        with server.client(db=2) as client:
            assert client.hget("other:{tessera.documents/3}:head", "fence") == b"2"


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_a_server_that_is_not_there_is_named_without_the_password(scheme: str) -> None:
    port = free_port()
    store = connect(f"{scheme}://user:{SECRET}@127.0.0.1:{port}")
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{port} does not answer.*give --redis") as caught:
        await store.claim(SHARD, ["g1"])
    assert SECRET not in str(caught.value)
    await store.close()


async def test_a_wrong_password_is_a_matter_of_settings(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@read", "+ping")
        for password, command in ((f"{SECRET}x", "ping"), (SECRET, "claim")):
            store = connect(f"redis://reader:{password}@127.0.0.1:{server.port}")
            with pytest.raises(SettingsError, match="check the user, password and permissions") as caught:
                await (store.ping() if command == "ping" else store.claim(SHARD, ["g1"]))
            assert SECRET not in str(caught.value)
            await store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"http://u:{SECRET}@h", "http is not one of redis"),
        (f"u:{SECRET}@h", "is not one of redis"),
        (f"redis://u:{SECRET}@h:port", "malformed"),
        (f"redis://u:{SECRET}@h:99999", "malformed"),
        (
            f"redis://u:{SECRET}@h?decode_responses=true",
            "decode_responses is not an option",
        ),
        (f"redis://u:{SECRET}@h?ssl_ca_certs=f", "ssl_ca_certs is not an option of a redis:// URL"),
        (f"redis://u:{SECRET}@h?socket_timeout=soon", "socket_timeout"),
        (f"redis://u:{SECRET}@h?cluster=perhaps", "neither true nor false"),
        (f"redis://u:{SECRET}@h/3?cluster=true", "db"),
    ],
)
def test_a_url_that_is_wrong_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        connect(url)
    assert SECRET not in str(caught.value)


def test_a_namespace_that_would_move_hash_tags_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"namespace 'a\{b\}'"):
        connect("redis://h", "a{b}")
    with pytest.raises(ValueError, match="must not hold braces"):
        Keys().shard(ShardId("a}b", 0))


def test_all_keys_of_a_shard_share_its_hash_tag() -> None:
    keys = Keys("ns").shard(SHARD)
    names = [keys.head, keys.documents, keys.parts, keys.deadletters, keys.outbox, keys.counters]
    names += [keys.segments("g1"), keys.tombstones("g1"), keys.blob("{other}/é")]
    assert all(name.startswith("ns:{tessera.documents/3}:") for name in names)
    assert len(set(names)) == len(names)
