"""TLS and logins, on the servers themselves: what is right gets in, what is not is told apart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from servers import free_port

from bench.backends import redis_binary
from bench.local_kafka import LocalKafka
from tessera.documents.record import DocumentRecord
from tessera.errors import SettingsError, UnavailableError
from tessera.events.catalog import SourceCatalog
from tessera.events.change import Upsert
from tessera.events.topics import CHANGE_TOPICS, DOCUMENTS
from tessera.kafka.admin import ensure_topics, high_watermarks
from tessera.kafka.publisher import Publisher
from tessera.kafka.security import security_of
from tessera.settings import Settings
from tessera.store.base import ShardId
from tessera.store.connect import connect

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]
USER, PASSWORD = "tessera", "correct-horse"
DEADLINE_S = 60.0


def keystore(authority: Authority) -> dict[str, str]:
    """Kafka's own certificate, and by whom it checks those of clients."""
    certificate, key = authority.sign("broker")
    inline = {
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
        "ssl.truststore.certificates": authority.certificate.read_text(),
    }
    return {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"} | {
        name: text.replace("\n", "\\n") for name, text in inline.items()
    }


def settings(broker: str, **given: Any) -> Settings:
    return Settings(broker=broker, redis="memory://", **given)


def reach(configured: Settings) -> dict[str, int]:
    return asyncio.run(ensure_topics(configured.broker, 1, security=security_of(configured)))


def test_certificates_of_both_sides_are_checked(
    authority: Authority, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    required = keystore(authority) | {"ssl.client.auth": "required"}
    certificate, key = authority.sign("client")
    stranger = Authority(tmp_path_factory.mktemp("other"), "Other")
    other_certificate, other_key = stranger.sign("client")
    with LocalKafka(tmp_path / "kafka", protocol="SSL", settings=required) as kafka:
        trusting: dict[str, Any] = {"kafka_protocol": "SSL", "kafka_ca_file": authority.certificate}
        right = settings(kafka.address, **trusting, kafka_cert_file=certificate, kafka_key_file=key)
        assert DOCUMENTS in reach(right)
        wrong = (
            settings(kafka.address, **trusting),
            settings(kafka.address, **trusting, kafka_cert_file=other_certificate, kafka_key_file=other_key),
            settings(kafka.address, kafka_protocol="SSL", kafka_ca_file=stranger.certificate),
            settings(kafka.address, kafka_protocol="SSL"),
            settings(kafka.address),
        )
        for refused in wrong:
            with pytest.raises(UnavailableError, match=kafka.address):
                reach(refused)


def test_files_that_cannot_be_used_and_logins_that_are_not_whole_are_named(
    authority: Authority, tmp_path: Path
) -> None:
    nothing = tmp_path / "nothing.pem"
    for given, words in (
        ({"kafka_protocol": "SSL", "kafka_ca_file": nothing}, "kafka_ca_file: .*nothing.pem"),
        (
            {"kafka_protocol": "SSL", "kafka_cert_file": authority.certificate, "kafka_key_file": nothing},
            "kafka_cert_file: .* with .*nothing.pem",
        ),
        ({"kafka_protocol": "SASL_SSL", "kafka_username": "u"}, "give kafka_username and kafka_password"),
    ):
        with pytest.raises(SettingsError, match=words):
            security_of(settings("b:1", **given))  # type: ignore[arg-type]


@contextmanager
def redis_with_tls(authority: Authority, folder: Path) -> Iterator[str]:
    """A server that only TLS and one user get into; the URL, without a password."""
    certificate, key = authority.sign("redis")
    port = free_port()
    folder.mkdir()
    (folder / "redis.conf").write_text(
        f"port 0\ntls-port {port}\nbind 127.0.0.1\ndir {folder}\ntls-cert-file {certificate}\n"
        f"tls-key-file {key}\ntls-ca-cert-file {authority.certificate}\ntls-auth-clients no\n"
        f"user default off\nuser {USER} on >{PASSWORD} ~* &* +@all -@dangerous +info +keys\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([redis_binary(), str(folder / "redis.conf")], stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{port}/0?ssl_ca_certs={authority.certificate}"
    finally:
        process.terminate()
        process.wait()


async def pinged(url: str) -> None:
    store = connect(url)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return await store.ping()
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
    finally:
        await store.close()


def test_a_worker_indexes_over_logins_and_tls_on_both_sides(authority: Authority, tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    security = keystore(authority) | {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.client.scram-sha-512.sasl.jaas.config": login,
    }
    with (
        LocalKafka(
            tmp_path / "kafka", protocol="SASL_SSL", settings=security, scram={USER: PASSWORD}
        ) as kafka,
        redis_with_tls(authority, tmp_path / "redis") as place,
    ):
        url = f"rediss://{USER}:{PASSWORD}@{place}"
        asyncio.run(pinged(url))
        given: dict[str, Any] = {
            "kafka_protocol": "SASL_SSL",
            "kafka_ca_file": authority.certificate,
            "kafka_username": USER,
        }
        wrong = settings(kafka.address, **given, kafka_password="wrong")
        with pytest.raises((SettingsError, UnavailableError), match=kafka.address):
            reach(wrong)
        right = settings(kafka.address, **given, kafka_password=PASSWORD).model_copy(update={"redis": url})
        log = tmp_path / "worker.log"
        with log.open("wb") as stream:
            environment = {**os.environ, **right.environment()}
            worker = subprocess.Popen(
                [sys.executable, "-m", "streams"], env=environment, stdout=stream, stderr=stream
            )
        try:
            asyncio.run(published_and_indexed(right, log))
        finally:
            worker.terminate()
            worker.wait(30)
        assert PASSWORD not in log.read_text()


async def published_and_indexed(configured: Settings, log: Path) -> None:
    security = security_of(configured)
    topics = await ensure_topics(configured.broker, 1, security=security)
    counts = {topic: topics[topic] for topic in CHANGE_TOPICS}
    change = Upsert("notes", "a.md", None, "text/markdown", "# Secured\n\nText.\n", ("*",))
    async with Publisher(configured.broker, SourceCatalog(), counts, security=security) as publisher:
        position = await publisher.publish(change)
    shard = ShardId(position.topic, position.partition)
    assert (await high_watermarks(configured.broker, [shard], security=security))[shard] == 1
    store = connect(configured.redis)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            [encoded] = await store.documents(shard, ["notes/a.md"])
            if encoded is not None:
                break
            assert time.monotonic() < deadline, f"see {log}"
            await asyncio.sleep(0.1)
        assert not DocumentRecord.decode(encoded, "notes/a.md").deleted
    finally:
        await store.close()
