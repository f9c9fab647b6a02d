"""Pin the images that deploy/ names to their digests: `make pin`. Requires Docker and a network.

An image without a digest is whatever its tag means on the day on which it is pulled. Run this for each release, and
whenever an image has a security fix.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

DEPLOY = Path(__file__).parents[1] / "deploy"
# The image that WTB itself builds has a variable in its place.
IMAGE = re.compile(r"^(\s*image: |ARG \w*IMAGE=)(?!\$)([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?$", re.MULTILINE)


def images(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the images that a file names, each with its digest if it has one."""
    yield from ((match[2], match[3]) for match in IMAGE.finditer(text))


def files() -> list[Path]:
    """List the files that name images."""
    return [DEPLOY / "Dockerfile", *sorted(DEPLOY.rglob("*.yaml"))]


def digest_of(image: str) -> str:
    """Return the digest that a tag has now, of the list of images for all platforms."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    digests: dict[str, str] = {}
    for path in files():
        text = path.read_text()
        for image, _ in images(text):
            if image not in digests:
                digests[image] = digest_of(image)
        path.write_text(IMAGE.sub(lambda match: f"{match[1]}{match[2]}@{digests[match[2]]}", text))
    for image, digest in sorted(digests.items()):
        print(f"{image}@{digest}")


if __name__ == "__main__":
    main()
