"""Put the CommonMark specification's examples where the tests look for them.

They are CC BY-SA, so they are not kept here; the source distribution of markdown-it-py carries them.
Usage: python tests/fetch_commonmark.py [FILE]   (default: commonmark.json in the running environment)
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

DISTRIBUTION = "markdown-it-py==4.3.0"
MEMBER = "tests/test_cmark_spec/commonmark.json"


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(sys.prefix) / "commonmark.json")
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--no-binary", "markdown-it-py", "--dest", folder]
        subprocess.run([*pip, *options, DISTRIBUTION], check=True)
        (source,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(source) as archive:
            (member,) = (member for member in archive if member.name.endswith(MEMBER))
            file = archive.extractfile(member)
            if file is None:
                raise SystemExit(f"{DISTRIBUTION}: {MEMBER} is not a file")
            target.write_bytes(file.read())


if __name__ == "__main__":
    main()
