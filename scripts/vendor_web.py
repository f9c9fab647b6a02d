"""Fetch the libraries that the pages use into `wtb/hosting/pages/web/vendor`, with their licences and hashes.

They stay as they were published, but for the names by which they import each other: browsers have no `node_modules`.
Needs npm. `manifest.json` has the SHA-256 of each file as published and as it stands here, and a test holds the
latter against the files.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).resolve().parent.parent / "wtb" / "hosting" / "pages" / "web" / "vendor"

# package -> version, and of its files the one that is used and what it is called here
PACKAGES = {
    "preact": ("11.2.0", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"}),
    "@preact/signals-core": ("1.14.5", {"dist/signals-core.mjs": "signals-core.js"}),
    "@preact/signals": ("2.11.4", {"dist/signals.mjs": "signals.js"}),
    "htm": ("3.1.1", {"dist/htm.mjs": "htm.js"}),
}
IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
_FROM = re.compile(r"""(from\s*)(["'])([@a-z/-]+)\2""")


def _with_paths(text: str) -> str:
    text = _FROM.sub(lambda match: f"{match[1]}{match[2]}{IMPORTS[match[3]]}{match[2]}", text)
    return re.sub(r"\n?//# sourceMappingURL=.*\n?", "\n", text)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Fetch all of them."""
    manifest = []
    with tempfile.TemporaryDirectory() as folder:
        for package, (version, files) in PACKAGES.items():
            command = ["npm", "pack", "--silent", f"{package}@{version}"]
            packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
            with tarfile.open(Path(folder, packed)) as archive:
                contents = {name: archive.extractfile(f"package/{name}") for name in (*files, "LICENSE")}
                read = {name: member.read() for name, member in contents.items() if member is not None}
            (VENDOR / f"LICENSE.{package.replace('/', '.').lstrip('@')}").write_bytes(read["LICENSE"])
            for name, path in files.items():
                content = _with_paths(read[name].decode()).encode()
                (VENDOR / path).write_bytes(content)
                hashes = {"published_sha256": _sha256(read[name]), "sha256": _sha256(content)}
                manifest.append({"file": path, "package": package, "version": version, **hashes})
    (VENDOR / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
