"""The Lua scripts: each is one atomic step within one hash slot."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import NoScriptError

Client = Redis | RedisCluster
Argument = str | bytes | int

_FOLDER = files("tessera.store") / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """One script. Servers know it by the SHA-1 of its source once they have run it."""

    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", sha)

    async def run(self, client: Client, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it and return its reply. A server that does not know it is sent the source once.

        A script refused as unknown has not run, so sending it again cannot apply anything twice.
        """
        try:
            return await client.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await client.execute_command("EVAL", self.source, len(keys), *keys, *args)


def _load(name: str) -> Script:
    return Script(_FOLDER.joinpath(name).read_text("utf-8"))


def _load_on_head(name: str) -> Script:
    prelude, script = (_FOLDER.joinpath(part).read_text("utf-8") for part in ("head.lua", name))
    return Script(f"{prelude}\n{script}")


CLAIM = _load_on_head("claim.lua")
ADOPT_LOG = _load_on_head("adopt_log.lua")
COMMIT = _load_on_head("commit.lua")
MANIFEST = _load_on_head("manifest.lua")
DISCARD = _load_on_head("discard.lua")
CONTRACT = _load_on_head("contract.lua")
CLEAR = _load_on_head("clear.lua")
PUT_CONTROL = _load_on_head("put_control.lua")
LEASES = _load_on_head("leases.lua")
CLOCK = _load("clock.lua")
REFRESH = _load("refresh.lua")
