/* Copyright: (c) 2026, the corral authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 * The first process of every pod: it holds the pod's namespaces and reaps orphans, and does nothing else. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    const struct sigaction on_leave = {.sa_handler = leave};
    const struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
    if (sigaction(SIGTERM, &on_leave, NULL) || sigaction(SIGINT, &on_leave, NULL) || sigaction(SIGCHLD, &on_child, NULL))
        return 1;
    for (;;)
        pause();
}
