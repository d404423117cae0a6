# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""tools/links.py FOLDER: the documents of a collection's folder, as its archive holds them, with links that lead somewhere.

What galaxy.yml leaves out of the archive is in the repository; a relative link there becomes one of that address. Exit status 1 where one leads nowhere.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def written(document: Path, folder: Path, galaxy: dict[str, Any]) -> str:
    """Return a document's text with its links to what stays out of the archive."""

    def there(found: re.Match[str]) -> str:
        path = Path(os.path.normpath(document.parent / found[1])).relative_to(folder)
        return f"{galaxy['repository']}/blob/main/{path}" if path.parts[0] in galaxy["build_ignore"] else found[1]

    return LINK.sub(there, document.read_text(encoding="utf-8"))


def documents(folder: Path, galaxy: dict[str, Any]) -> Iterator[Path]:
    """Return the documents that the archive will hold."""
    for path in sorted(folder.rglob("*.md")):
        if path.relative_to(folder).parts[0] not in galaxy["build_ignore"]:
            yield path


def main(folder: Path, say: Callable[[str], object] = print) -> int:
    galaxy = yaml.safe_load((folder / "galaxy.yml").read_text(encoding="utf-8"))
    lost = []
    for document in documents(folder, galaxy):
        text = document.read_text(encoding="utf-8")
        lost += [f"{document.relative_to(folder)}: {link}" for link in LINK.findall(text) if not (document.parent / link).exists()]
        document.write_text(written(document, folder, galaxy), encoding="utf-8")
    for line in lost:
        say(f"{line} leads nowhere; correct it there.")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
