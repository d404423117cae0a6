/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * What jail-exec alone needs of terminals.
 */
#ifndef CORRAL_TERMINAL_H
#define CORRAL_TERMINAL_H

#include <stdbool.h>

#define TERMINAL_HERE 0
#define TERMINAL_FAILED (-1)

/* Returns where the command is to be run: without a terminal of the caller, at once; else in a child, in a session and on a terminal of its own, while
 * the caller passes on what is typed and shown, and ends with the child's status. -1 with errno. */
int terminal_apart(void);

#endif
