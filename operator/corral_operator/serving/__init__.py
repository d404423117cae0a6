# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others ask of this process: metrics, probes, and checks of documents as they are written."""
