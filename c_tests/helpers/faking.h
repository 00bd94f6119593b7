/*
 * Helpers of the fakes of CUDA's libraries. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKING_H
#define FAKING_H

#include <plinth.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Returns the code with which a call must fail, from an environment variable such as cublasCreate_v2:3, or 0. */
static inline int fault_of(const char *variable, const char *call) {
  const char *text = getenv(variable);
  const size_t length = strlen(call);
  return text != NULL && strncmp(text, call, length) == 0 && text[length] == ':' ? atoi(text + length + 1) : 0;
}

typedef struct lookup {
  const char *name;
  void *found;
} lookup;

static inline void *look_up(void *context) {
  lookup *wanted = (lookup *)context;
  plinth_driver_entry_point(wanted->name, &wanted->found);
  return NULL;
}

/* Finds a function of the driver. The library is in a call of this thread, and refuses another one; so another thread asks. */
static inline void *entry_point(const char *name) {
  lookup wanted = {name, NULL};
  pthread_t thread;
  if (pthread_create(&thread, NULL, look_up, &wanted) == 0) {
    pthread_join(thread, NULL);
  }
  return wanted.found;
}

#endif
