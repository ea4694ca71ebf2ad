"""How clients prove themselves to a Kafka broker and are sure of it: TLS and SASL, from the settings."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path

from tessera.errors import SettingsError
from tessera.kafka.connection import Security
from tessera.settings import Settings


def security_of(settings: Settings) -> Security:
    """What every client is given. :class:`~tessera.errors.SettingsError` where a file cannot be used."""
    protocol = settings.kafka_protocol
    security: dict[str, object] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        security["ssl_context"] = _context(
            settings.kafka_ca_file, settings.kafka_cert_file, settings.kafka_key_file
        )
    if protocol.startswith("SASL"):
        if not settings.kafka_username or settings.kafka_password is None:
            raise SettingsError(f"kafka_protocol is {protocol}: give kafka_username and kafka_password")
        security |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_username,
            "sasl_plain_password": settings.kafka_password.get_secret_value(),
        }
    return security


@lru_cache(maxsize=8)
def _context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Certificates and names of brokers are always checked, by ``ca`` or by what the system trusts."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise SettingsError(f"kafka_ca_file: {ca}: cannot be used ({error.strerror or error})") from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            where = f"{certificate}{f' with {key}' if key else ''}"
            raise SettingsError(
                f"kafka_cert_file: {where}: cannot be used ({error.strerror or error})"
            ) from None
    return context
