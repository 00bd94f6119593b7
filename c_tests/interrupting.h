/*
 * A timer whose signal interrupts system calls, which are not restarted. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef INTERRUPTING_H
#define INTERRUPTING_H

#include "harness.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>

static volatile sig_atomic_t signals;

static inline void count_signal(int number) {
  (void)number;
  signals++;
}

static inline void install_handler(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = count_signal;
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

/* Starts the timer; stops it with 0. */
static inline void interrupt_every(int microseconds) {
  const struct itimerval interval = {{0, microseconds}, {0, microseconds}};
  CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0);
}

#endif
