"""A network that delays, loses, and for a while carries nothing: a namespace whose loopback does so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IP, TC = shutil.which("ip") or "", shutil.which("tc") or ""

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (IP and TC and os.geteuid() == 0),
        reason="network namespaces need root, ip and tc (Debian: apt install iproute2)",
    ),
]

POOR = ("delay", "4ms", "2ms", "loss", "0.5%")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network of its own, with nothing but a loopback."""
    name = f"tessera-{os.getpid()}"
    run(IP, "netns", "add", name)
    try:
        run(IP, "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        run(IP, "netns", "del", name)


def make_poor(namespace: str) -> bool:
    """Let the loopback delay and lose packets, where the kernel can (module sch_netem); whether it does."""
    command = [TC, "-n", namespace, "qdisc", "add", "dev", "lo", "root", "netem", *POOR]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_nothing_is_lost_over_a_network_that_breaks_and_heals(namespace: str) -> None:
    """Servers, worker and publisher talk over it; a worker is killed, and Redis loses its last second."""
    make_poor(namespace)
    ordeal = ["--events", "1500", "--documents", "60", "--logs", "6", "--kills", "1", "--power-losses", "1"]
    process = subprocess.Popen(
        [IP, "netns", "exec", namespace, sys.executable, "-m", "bench.crash", *ordeal],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ended = threading.Event()
    broken = 0

    def break_and_heal() -> None:
        nonlocal broken
        while not ended.wait(6):
            run(IP, "-n", namespace, "link", "set", "lo", "down")
            time.sleep(2)
            run(IP, "-n", namespace, "link", "set", "lo", "up")
            broken += 1

    breaking = threading.Thread(target=break_and_heal)
    breaking.start()
    try:
        told, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        ended.set()
        breaking.join()
    assert process.returncode == 0, told
    assert broken
