/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

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

void jail_info(const struct jail_log *log, const char *format, ...)
{
	char text[512];
	va_list arguments;

	if (!log || !log->info)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log->info(text);
}

void jail_debug(const struct jail_log *log, const char *format, ...)
{
	char text[512];
	va_list arguments;

	if (!log || !log->debug)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log->debug(text);
}
