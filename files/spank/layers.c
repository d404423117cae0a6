/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 *
 * Layers: trees of mounts that are taken where the pod's root is visible, and laid over the jail where only the jail is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

static int can_not(const struct jail_log *log, const struct jail_layer *layer, const char *why, struct jail_error *error)
{
	return jail_not_shown(log, "", layer->target, layer->mandatory, why, error);
}

/* Takes the tree over, after a failure too. "target" is relative to the jail's root and stays the caller's. */
int jail_layers_add(struct jail_layers *layers, int tree, const char *target, bool mandatory, struct jail_error *error)
{
	struct jail_layer *grown = reallocarray(layers->layer, layers->count + 1, sizeof(*grown));

	if (!grown) {
		jail_close(tree);
		return jail_fail(error, "out of memory while opening the jail's /%s", target);
	}
	layers->layer = grown;
	layers->layer[layers->count++] = (struct jail_layer){tree, target, mandatory};
	return 0;
}

/* What "source" shows in the pod, with all that is mounted below it where the attributes are for all of it. */
int jail_layers_show(struct jail_layers *layers, const struct jail_log *log, const char *source, const char *target, bool mandatory,
		     struct jail_attributes attributes, struct jail_error *error)
{
	const struct jail_layer layer = {-1, target, mandatory};
	int tree = jail_clone(AT_FDCWD, source, attributes.recursive);
	int result;

	if (tree < 0)
		return can_not(log, &layer, "the pod does not have it", error);
	if (jail_set(tree, attributes) == 0)
		return jail_layers_add(layers, tree, target, mandatory, error);
	result = can_not(log, &layer, "its mount attributes cannot be set", error);
	jail_close(tree);
	return result;
}

/* In their order. With "keep" what is mounted in their places stays there. */
int jail_layers_apply(const struct jail_layers *layers, const struct jail_log *log, int root, bool keep, struct jail_error *error)
{
	int result = 0;

	for (size_t i = 0; i < layers->count && result == 0; i++) {
		const struct jail_layer *layer = &layers->layer[i];
		int target = jail_path_open(root, layer->target, O_PATH);

		if (target < 0)
			result = can_not(log, layer, "the jail has no such mount point", error);
		else if (!(keep && jail_is_mount(target)) && jail_attach(layer->tree, target) < 0)
			result = can_not(log, layer, "the mount was refused", error);
		jail_close(target);
	}
	return result;
}

void jail_layers_close(struct jail_layers *layers)
{
	for (size_t i = 0; i < layers->count; i++)
		jail_close(layers->layer[i].tree);
	free(layers->layer);
	*layers = (struct jail_layers){0, NULL};
}
