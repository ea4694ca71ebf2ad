"""Reaching a broker: bounded in time, and with errors that say which broker and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from tessera.errors import SettingsError, UnavailableError

DEADLINE_S: Final = 10.0
"""No call waits longer for a broker that does not answer: a command must not seem to hang."""

Security = Mapping[str, Any]
"""Arguments for every aiokafka client, passed through: ``security_protocol``, ``ssl_context``, ``sasl_…``."""

NO_SECURITY: Final[Security] = {}

_DENIED = (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)


@asynccontextmanager
async def reaching(bootstrap: str, purpose: str, timeout_s: float = DEADLINE_S) -> AsyncIterator[None]:
    """Bound the body in time and translate what the client library raises.

    Raises :class:`UnavailableError` where the broker does not answer within ``timeout_s`` or cannot serve
    now, and :class:`SettingsError` where it denies access. Other errors pass.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (TimeoutError, KafkaTimeoutError) as error:
        raise _unavailable(bootstrap, purpose, f"no answer within {timeout_s:g} s") from error
    except _DENIED as error:
        raise SettingsError(
            f"the Kafka broker at {bootstrap} denied access while {purpose}: {error}; check its credentials"
        ) from error
    except OffsetOutOfRangeError as error:  # the log was cut while it was looked at
        raise _unavailable(bootstrap, purpose, "the log changed at the same moment") from error
    except KafkaError as error:
        if not error.retriable:
            raise
        raise _unavailable(bootstrap, purpose, str(error) or type(error).__name__) from error
    except OSError as error:
        raise _unavailable(bootstrap, purpose, str(error)) from error


def _unavailable(bootstrap: str, purpose: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"the Kafka broker at {bootstrap} is not available ({purpose}: {why}); is it running there?"
    )
