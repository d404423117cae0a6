# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's version; a test keeps it equal to galaxy.yml. It is part of every content hash."""

from __future__ import annotations

COLLECTION_VERSION = "0.1.0"
