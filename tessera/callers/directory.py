"""All that a bearer token can be: the tokens of the settings, those of the file, those of an issuer."""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import compare_digest

from pydantic import SecretStr

from tessera.callers.caller import OPERATOR, Caller, caller
from tessera.callers.signed import Issuer, SignedTokens
from tessera.callers.tokens import digest, parse_tokens
from tessera.callers.watched import Watched
from tessera.settings import Settings

MAX_TOKEN = 16 * 1024
"""Characters of a token; no header is longer."""


class Directory:
    """Tells who a token names. Made once; files are read again when they were changed."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._file = Watched(settings.tokens_file, parse_tokens) if settings.tokens_file else None
        self._signed = _signed(settings)

    def check(self) -> None:
        """Raise :class:`~tessera.errors.SettingsError` where a file cannot be read."""
        if self._file is not None:
            self._file.read()
        if self._signed is not None:
            self._signed.check()

    @property
    def is_open(self) -> bool:
        """Whether no token is configured at all: whoever reaches the service is the operator."""
        return not is_guarded(self._settings)

    def identify(self, token: str) -> Caller | None:
        """The caller that the token names, None for nobody.

        :class:`~tessera.errors.SettingsError` where a file that could tell cannot be read.
        """
        if len(token) > MAX_TOKEN:
            return None
        settings = self._settings
        if _matches(settings.operator_token, token):
            return OPERATOR
        if _matches(settings.monitor_token, token):
            return Caller("monitor", "monitor", frozenset())
        if _matches(settings.read_token, token):
            return caller("reader", "reader", frozenset(settings.read_principals))
        if self._file is not None:
            # What is compared is a hash: how long it takes tells nothing of the token.
            held = self._file.read().get(digest(token))
            if held is not None:
                expired = held.expires_at is not None and held.expires_at <= self._clock()
                return None if expired else held.caller()
        return self._signed.identify(token) if self._signed is not None else None


def is_guarded(settings: Settings) -> bool:
    """Whether some token is asked for."""
    tokens = (settings.read_token, settings.monitor_token, settings.operator_token)
    return any(each is not None for each in (*tokens, settings.tokens_file, settings.jwks_file))


def _signed(settings: Settings) -> SignedTokens | None:
    if settings.jwks_file is None:
        return None
    issuer = Issuer(
        settings.jwt_issuer,
        settings.jwt_audience,
        settings.jwt_groups_claim,
        frozenset(settings.jwt_monitor_groups),
        frozenset(settings.jwt_operator_groups),
    )
    return SignedTokens(settings.jwks_file, issuer)


def _matches(secret: SecretStr | None, token: str) -> bool:
    # Constant time: how long a comparison takes must not tell how much of the token was right.
    return secret is not None and compare_digest(secret.get_secret_value().encode(), token.encode())
