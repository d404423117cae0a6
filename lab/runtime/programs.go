// Copyright: (c) 2026, the corral authors
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build programs

// Package runtime names the programs that run the lab's containers, so that go.mod has their modules; it is compiled by nobody.
package runtime

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
	_ "github.com/opencontainers/runc"
)
