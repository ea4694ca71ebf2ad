"""``python -m streams``: one worker, from the settings in the environment until it is told to stop."""

from __future__ import annotations

import sys

from streams.worker import main

sys.exit(main())
