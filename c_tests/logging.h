/*
 * Collects the messages of the log.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef LOGGING_H
#define LOGGING_H

#include "support.h"

enum { LOGGED_MAX = 64 };

/* The messages since log_collect. */
static struct {
  pthread_mutex_t lock;
  int count;
  struct {
    int32_t level;
    pthread_t thread;
    char text[1024];
  } messages[LOGGED_MAX];
} logged = {PTHREAD_MUTEX_INITIALIZER, 0, {{0, 0, {0}}}};

static inline void log_add(int32_t level, const char *message, void *context) {
  CHECK_SAME(context, &logged);
  pthread_mutex_lock(&logged.lock);
  CHECK(logged.count < LOGGED_MAX);
  logged.messages[logged.count].level = level;
  logged.messages[logged.count].thread = pthread_self();
  snprintf(logged.messages[logged.count].text, sizeof logged.messages[0].text, "%s", message);
  logged.count++;
  pthread_mutex_unlock(&logged.lock);
}

/* Forgets the messages so far, and collects those of a level and above. */
static inline void log_collect(int32_t level) {
  CHECK_OK(plinth_set_log_callback(level, log_add, &logged));
  logged.count = 0;
}

/* Returns the index of the first message of a level that contains a text; -1 if there is none. */
static inline int log_find(int32_t level, const char *part) {
  for (int index = 0; index < logged.count; index++) {
    if (logged.messages[index].level == level && strstr(logged.messages[index].text, part) != NULL) {
      return index;
    }
  }
  return -1;
}

static inline void log_expect(int32_t level, const char *part, const char *file, int line) {
  if (log_find(level, part) >= 0) {
    return;
  }
  fprintf(stderr, "the log has no message of level %d with \"%s\", but these:\n", (int)level, part);
  for (int index = 0; index < logged.count; index++) {
    fprintf(stderr, "  %d %s\n", (int)logged.messages[index].level, logged.messages[index].text);
  }
  harness_fail(file, line, "a message is missing");
}

/* Checks that the log has a message of a level with a text. */
#define CHECK_LOGGED(level, part) log_expect((level), (part), __FILE__, __LINE__)

#endif
