"""Fetches the packages of the page and copies what it imports; the standard library only.

Run by tools/bootstrap.py as `python tools/console_packages.py NPM…`, where NPM… is the command of
a package installer; without one it only tells by its status whether there is nothing to do. What
business_gateway/console/package-lock.json locks is fetched into a temporary folder, and the files
named here are copied to business_gateway/console/static/vendor, which is part of the wheel and
never committed. A stamp there makes a second run do nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = ROOT / "business_gateway" / "console"
VENDOR = CONSOLE / "static" / "vendor"
# What the import map of static/index.html names, and the licences that go with the copies.
COPIES = {
    "preact.mjs": "preact/dist/preact.mjs",
    "preact-hooks.mjs": "preact/hooks/dist/hooks.mjs",
    "htm.mjs": "htm/dist/htm.mjs",
    "signals.mjs": "@preact/signals/dist/signals.mjs",
    "signals-core.mjs": "@preact/signals-core/dist/signals-core.mjs",
    "dagre.mjs": "@dagrejs/dagre/dist/dagre.esm.js",
    "preact.LICENSE.txt": "preact/LICENSE",
    "htm.LICENSE.txt": "htm/LICENSE",
    "signals.LICENSE.txt": "@preact/signals/LICENSE",
    "signals-core.LICENSE.txt": "@preact/signals-core/LICENSE",
    "dagre.LICENSE.txt": "@dagrejs/dagre/LICENSE",
}
_STAMP = "stamp"


def is_fresh() -> bool:
    """Whether the copies are those of the lock file as it is now."""
    stamp = VENDOR / _STAMP
    return stamp.exists() and stamp.read_text(encoding="ascii") == _digest()


def fetch(npm: list[str]) -> bool:
    """Install what is locked, copy it and tell whether that worked; npm's words go to stderr."""
    if not npm:
        return False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for lock in ("package.json", "package-lock.json"):
            shutil.copy(CONSOLE / lock, folder)
        flags = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
        try:
            done = subprocess.run([*npm, *flags], cwd=folder, stdout=sys.stderr, check=False)
        except OSError:
            return False
        if done.returncode != 0:
            return False
        shutil.rmtree(VENDOR, ignore_errors=True)
        VENDOR.mkdir(parents=True)
        for target, source in COPIES.items():
            shutil.copy(folder / "node_modules" / source, VENDOR / target)
    # Last, so that copying that was cut off is done again.
    (VENDOR / _STAMP).write_text(_digest(), encoding="ascii")
    return True


def _digest() -> str:
    inputs = (CONSOLE / "package-lock.json", Path(__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()


if __name__ == "__main__":
    sys.exit(0 if is_fresh() or fetch(sys.argv[1:]) else 1)
