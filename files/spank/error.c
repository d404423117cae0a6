/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

int jail_fail(struct jail_error *error, const char *format, ...)
{
	int saved = errno;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	errno = saved;
	return -1;
}

static void emit(void (*out)(const char *text), const char *format, va_list arguments)
{
	char text[512];

	if (!out)
		return;
	vsnprintf(text, sizeof(text), format, arguments);
	out(text);
}

void jail_info(const struct jail_log *log, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	emit(log ? log->info : NULL, format, arguments);
	va_end(arguments);
}

void jail_debug(const struct jail_log *log, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	emit(log ? log->debug : NULL, format, arguments);
	va_end(arguments);
}

void jail_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
}

int jail_not_shown(const struct jail_log *log, const char *parent, const char *target, bool mandatory, const char *why, struct jail_error *error)
{
	if (mandatory)
		return jail_fail(error, "/%s%s cannot be shown in the jail: %s (%s); populate the jail anew or correct the pod's mounts", parent, target,
				 why, strerror(errno));
	jail_debug(log, "/%s%s is not shown in the jail: %s (%s)", parent, target, why, strerror(errno));
	return 0;
}
