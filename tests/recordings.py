"""Where the public recordings lie; none of them is part of the repository."""

import os
from pathlib import Path

RECORDINGS = Path(os.environ.get("LINESIDE_RECORDINGS", Path(__file__).resolve().parents[2] / "shared" / "data"))
