/* SPDX-License-Identifier: GPL-3.0-or-later
 * Copyright: (c) 2026, the corral authors
 */
#include "check.h"

#include <sys/statvfs.h>

static struct jail_error error;

static int prepare(void)
{
	char *words[] = {"jail=" JAIL, "wait=0"};
	struct jail_plan plan;
	int result;

	CHECK(jail_plan_parse(&plan, 2, words, &error) == 0);
	result = jail_prepare(&plan, NULL, &error);
	jail_plan_free(&plan);
	return result;
}

static void makes_a_chroot_usable(void)
{
	make_pod();
	CHECK(prepare() == 0);
	CHECK(there_is(JAIL "/proc/self") && there_is(JAIL "/dev/null") && there_is(JAIL "/run/munge/socket"));
	CHECK(!there_is(JAIL "/run/pods-own") && !there_is(JAIL "/mnt/spool/script"));
	/* Nothing of the pod: the chroot is the users' own. */
	CHECK(there_is(JAIL "/usr/iam-jail"));
	CHECK(there_is(POD "/iam-pod"));
}

static int attach(char *bind)
{
	char *words[] = {"jail=" JAIL, "wait=0", bind};
	struct jail_plan plan;
	int result;

	CHECK(jail_plan_parse(&plan, 3, words, &error) == 0);
	result = jail_attach_binds(&plan, NULL, &error);
	jail_plan_free(&plan);
	return result;
}

static void volumes_are_attached_once(void)
{
	struct statvfs status;
	int mounts;

	make_pod();
	make_directory(POD "/volume", 0755);
	make_file(POD "/volume/file", "");
	CHECK(attach("bind=" POD "/volume:/data") == 0);
	CHECK(there_is(JAIL "/data/file"));
	CHECK(statvfs(JAIL "/data", &status) == 0 && (status.f_flag & ST_NOSUID) && (status.f_flag & ST_NODEV));
	mounts = count_mounts();
	CHECK(attach("bind=" POD "/volume:/data") == 0);
	CHECK(count_mounts() == mounts);
}

/* What root in the jail could do to have its files in the place of the pod's programs. */
static void volumes_follow_no_planted_link(void)
{
	int mounts;

	make_pod();
	make_directory(POD "/volume", 0755);
	make_directory(POD "/programs", 0755);
	make_file(POD "/programs/slurmd.sh", "");
	CHECK(rmdir(JAIL "/data") == 0);
	CHECK(symlink(POD "/programs", JAIL "/data") == 0);
	mounts = count_mounts();
	CHECK(attach("bind=" POD "/volume:/data") == -1);
	CHECK_HAS(error.text, "Too many levels of symbolic links");
	CHECK(count_mounts() == mounts && there_is(POD "/programs/slurmd.sh"));
}

static void volumes_lose_set_uid_and_the_jail_does_not(void)
{
	struct statvfs status;

	make_pod();
	CHECK(mount(JAIL, JAIL, NULL, MS_BIND, NULL) == 0);
	CHECK(mount("tmpfs", JAIL "/data", "tmpfs", 0, NULL) == 0);
	for (int again = 0; again < 2; again++) {
		CHECK(prepare() == 0);
		CHECK(statvfs(JAIL, &status) == 0 && !(status.f_flag & ST_NOSUID) && (status.f_flag & ST_NODEV));
		CHECK(statvfs(JAIL "/data", &status) == 0 && (status.f_flag & ST_NOSUID));
		CHECK(statvfs(JAIL "/dev/null", &status) == 0 && !(status.f_flag & ST_NODEV));
	}
}

static void again_changes_nothing(void)
{
	int first;

	make_pod();
	CHECK(prepare() == 0);
	first = count_mounts();
	CHECK(prepare() == 0);
	CHECK(count_mounts() == first);
}

static void goes_on_after_a_stop_half_way(void)
{
	int whole;

	make_pod();
	CHECK(prepare() == 0);
	whole = count_mounts();
	CHECK(umount2(JAIL "/dev/null", 0) == 0);
	CHECK(umount2(JAIL "/run/munge", 0) == 0);
	CHECK(umount2(JAIL "/opt/corral", 0) == 0);
	CHECK(count_mounts() == whole - 3);
	CHECK(prepare() == 0);
	CHECK(count_mounts() == whole);
}

/* Its directory was removed where it is no mount point: the kernel takes the mount away here too. */
static void a_mount_that_was_lost_comes_back_and_the_devices_live(void)
{
	struct statvfs status;

	make_pod();
	CHECK(mount(JAIL, JAIL, NULL, MS_BIND, NULL) == 0);
	CHECK(prepare() == 0);
	CHECK(umount2(JAIL "/proc", MNT_DETACH) == 0 && rmdir(JAIL "/proc") == 0);
	CHECK(prepare() == -1);
	CHECK_HAS(error.text, "/proc cannot be shown in the jail");
	make_directory(JAIL "/proc", 0755);
	CHECK(prepare() == 0);
	CHECK(there_is(JAIL "/proc/self"));
	CHECK(statvfs(JAIL "/dev/null", &status) == 0 && !(status.f_flag & ST_NODEV));
}

static void refuses_what_is_no_jail(void)
{
	int before;

	make_pod();
	CHECK(unlink(JAIL "/etc/corral-jail") == 0);
	before = count_mounts();
	CHECK(prepare() == -1);
	CHECK_HAS(error.text, "no marker file");
	CHECK(count_mounts() == before);
}

int main(void)
{
	if (needs_root())
		return 0;
	CASE(makes_a_chroot_usable);
	CASE(volumes_are_attached_once);
	CASE(volumes_follow_no_planted_link);
	CASE(volumes_lose_set_uid_and_the_jail_does_not);
	CASE(again_changes_nothing);
	CASE(goes_on_after_a_stop_half_way);
	CASE(a_mount_that_was_lost_comes_back_and_the_devices_live);
	CASE(refuses_what_is_no_jail);
	return finish();
}
