from __future__ import annotations

import pytest

from tessera.events.topics import DOCUMENTS, LOGS, partition_of, topic_of

JAVA_MURMUR2 = [
    # From the tests of Kafka's Java client, org.apache.kafka.common.utils.UtilsTest.
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "murmur2"), JAVA_MURMUR2)
def test_keys_go_where_kafkas_java_client_puts_them(key: bytes, murmur2: int) -> None:
    assert partition_of(key, 2**31) == murmur2 & 0x7FFFFFFF
    for partitions in (1, 3, 4, 64):
        assert partition_of(key, partitions) == (murmur2 & 0x7FFFFFFF) % partitions


def test_a_topic_without_partitions_has_no_place() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        partition_of(b"k", 0)


def test_a_kind_fixes_the_topic() -> None:
    assert topic_of("documents") == DOCUMENTS
    assert topic_of("devex") == topic_of("github") == LOGS
