# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that YAML readers take for the same value: a server-side apply's body and a template's expressions are both read as YAML."""

from __future__ import annotations

import json
import re
from typing import Any

# Characters that JSON leaves as they are and a YAML reader refuses or folds (YAML 1.1, 5.1 and 5.4).
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def as_json(value: Any) -> str:
    """Return ``value`` as compact JSON. Raises ValueError for what JSON or UTF-8 cannot hold, TypeError for other types."""
    # ensure_ascii would write a character beyond the BMP as two escapes; YAML does not join them, and the API server refuses them (400).
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    if _SURROGATE.search(text):
        raise ValueError("a text holds half a character (a lone UTF-16 surrogate)")
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
