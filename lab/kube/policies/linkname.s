// Copyright: (c) 2026, the corral authors
// SPDX-License-Identifier: GPL-3.0-or-later

// Go takes functions without a body (main.go) where there is an assembly file.
