# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's own PAM session of a step (UsePAM): slurmstepd, which is in the jail by then, follows the machine's configuration and loads the machine's modules."""

from __future__ import annotations

from .hosts import CONTROLLER, JAIL, NODES, PLUGIN, cluster

LIMIT = "777"


def test_the_machines_words_count_and_the_jails_do_not() -> None:
    with cluster(dict.fromkeys((CONTROLLER, *NODES), PLUGIN), "UsePAM=1\n") as made:
        for node in NODES:
            made.machines[node].write("/etc/pam.d/slurm", "account required pam_permit.so\nsession required pam_limits.so\n")
            made.machines[node].write("/etc/security/limits.d/steps.conf", f"* - nofile {LIMIT}\n")
        # As root of the jail would write it; and a module in its place, which would end who loads it.
        made.head.write(f"{JAIL}/etc/pam.d/slurm", "account requisite pam_deny.so\nsession requisite pam_deny.so\n")
        made.head.sh(f"for module in $(find {JAIL}/usr/lib {JAIL}/lib -name pam_limits.so); do echo >$module; done")
        look = "test -e /etc/corral-jail && ulimit -n"
        assert made.head.sh(f"srun -Q -N2 sh -c '{look}'", user="ada").split() == [LIMIT] * 2
        made.head.sh(f"sbatch -Q --wait -D /home/ada -o of-batch --wrap '{look}'", user="ada")
        assert made.head.read(f"{JAIL}/home/ada/of-batch").split() == [LIMIT]
        for node in NODES:
            made.machines[node].write("/etc/pam.d/slurm", "account requisite pam_deny.so\nsession requisite pam_deny.so\n")
        refused = made.head.run("srun", "-Q", "echo", "it ran", user="ada", check=False)
        assert refused.returncode != 0 and "it ran" not in refused.stdout
