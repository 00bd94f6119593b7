/*
 * Child processes of tests.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PROCESS_H
#define PROCESS_H

#include "support.h"

#include <sys/wait.h>

/* Runs `body` in a forked child. If `body` returns, the child ends without exit handlers. */
static inline pid_t start_child(void (*body)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

/* Waits for a child, which must exit with this status within EVENTUALLY_SECONDS. */
static inline void expect_child(pid_t child, int expected) {
  int status = 0;
  pid_t ended = 0;
  EVENTUALLY((ended = waitpid(child, &status, WNOHANG)) != 0);
  CHECK_EQ(ended, child);
  if (WIFSIGNALED(status)) {
    char message[64];
    snprintf(message, sizeof message, "the child was killed by signal %d", WTERMSIG(status));
    harness_fail(__FILE__, __LINE__, message);
  }
  CHECK_EQ(WEXITSTATUS(status), expected);
}

static inline void in_child(void (*body)(void)) { expect_child(start_child(body), 0); }

#endif
