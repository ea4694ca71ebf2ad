"""From a URL to a store."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException

from tessera.errors import SettingsError
from tessera.store.base import ShardStore
from tessera.store.keys import DEFAULT_NAMESPACE
from tessera.store.memory import MemoryStore
from tessera.store.redis import RedisStore

CONNECT_TIMEOUT_S = 5.0
"""Without it, an address that swallows packets holds a worker for the minutes that TCP tries."""

ANSWER_TIMEOUT_S = 15.0
"""Without it, a server that hangs holds a worker for ever. Longer than the longest command takes."""

HEALTH_CHECK_S = 30
"""A connection idle for longer is asked first: what a firewall closed is found by PING, not by a commit."""

MAX_CONNECTIONS = 64
"""More tasks than this wait for a connection; without a bound, a burst of queries uses up the server's."""

_CLUSTER_RETRIES = 1
"""A cluster client learns a new layout only by asking again. A commit asked twice is not applied twice, since
its sequence has moved."""

_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "memory")
_OPTIONS = frozenset({"db", "client_name", "max_connections", "socket_timeout", "socket_connect_timeout"})
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)


def connect(url: str, namespace: str = DEFAULT_NAMESPACE) -> ShardStore:
    """A store for ``url``; connections are opened by its first call.

    ``redis://[user:password@]host[:port][/db]``, ``rediss://`` (TLS), ``unix:///path[?db=n]``,
    ``redis+cluster://`` or ``rediss+cluster://`` (the same as ``?cluster=true``), and ``memory://``, a store
    of its own for each call. SettingsError where the URL is not one of these; its message holds no password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SettingsError("--redis: the URL is malformed; write redis://host:port") from None
    if parts.scheme not in _SCHEMES:
        raise SettingsError(
            f"--redis: {parts.scheme or 'no scheme'} is not one of {', '.join(_SCHEMES)}; write redis://host:port"
        )
    if parts.scheme == "memory":
        return MemoryStore()
    options = dict(parse_qsl(parts.query))
    cluster = _is_cluster(parts.scheme, options)
    scheme = parts.scheme.removesuffix("+cluster")
    unknown = options.keys() - _OPTIONS - (_TLS_OPTIONS if scheme == "rediss" else frozenset())
    if unknown:
        raise SettingsError(f"--redis: {min(unknown)} is not an option of a {scheme}:// URL; leave it out")
    plain = urlunsplit((scheme, parts.netloc, parts.path, urlencode(options), ""))
    where = parts.path if scheme == "unix" else f"{parts.hostname or 'localhost'}:{port or 6379}{parts.path}"
    return _open(plain, cluster, f"{parts.scheme}://{where}", namespace)


def _is_cluster(scheme: str, options: dict[str, str]) -> bool:
    asked = options.pop("cluster", "false").lower()
    if asked not in ("true", "false"):
        raise SettingsError(f"--redis: cluster={asked} is neither true nor false")
    return scheme.endswith("+cluster") or asked == "true"


def _open(url: str, cluster: bool, address: str, namespace: str) -> ShardStore:
    try:
        client = _cluster_client(url) if cluster else _client(url)
        return RedisStore(client, address, namespace)
    except (ValueError, RedisClusterException) as error:
        raise SettingsError(f"--redis {address}, namespace {namespace!r}: {error}") from None


def _client(url: str) -> Redis:
    pool = BlockingConnectionPool.from_url(
        url,
        # Nothing is asked twice behind our back: the caller decides, since it knows what it asked.
        retry=Retry(NoBackoff(), 0),
        timeout=ANSWER_TIMEOUT_S,
        max_connections=MAX_CONNECTIONS,
        socket_timeout=ANSWER_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        health_check_interval=HEALTH_CHECK_S,
        protocol=2,
    )
    return Redis.from_pool(pool)


def _cluster_client(url: str) -> RedisCluster:
    return RedisCluster.from_url(
        url,
        retry=Retry(NoBackoff(), _CLUSTER_RETRIES),
        max_connections=MAX_CONNECTIONS,
        socket_timeout=ANSWER_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        health_check_interval=HEALTH_CHECK_S,
        protocol=2,
    )
