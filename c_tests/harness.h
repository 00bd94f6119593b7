/*
 * The harness of the C and C++ tests. Each test is a process: a program with `--list` prints the names of its tests,
 * and with a name runs that one. Exit status 0 is a pass, 77 a skip, and everything else a failure.
 *
 * Include it first: it asks the system headers for POSIX. Good from C99 to C++17.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef HARNESS_H
#define HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <plinth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the program is compiled with a sanitizer, which takes memory of its own. gcc defines a macro; clang has a
 * question for it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HARNESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HARNESS_SANITIZED 1
#endif
#endif
#ifndef HARNESS_SANITIZED
#define HARNESS_SANITIZED 0
#endif

#define HARNESS_SKIPPED 77
#define HARNESS_MOST_TESTS 256

typedef struct harness_test {
  const char *name;
  void (*run)(void);
  int listed;
} harness_test;

static harness_test harness_tests[HARNESS_MOST_TESTS];
static int harness_count;

static inline void harness_add(const char *name, void (*run)(void), int listed) {
  if (harness_count == HARNESS_MOST_TESTS) {
    fprintf(stderr, "more than %d tests in a file\n", HARNESS_MOST_TESTS);
    _exit(2);
  }
  harness_tests[harness_count].name = name;
  harness_tests[harness_count].run = run;
  harness_tests[harness_count].listed = listed;
  harness_count++;
}

#define HARNESS_DEFINE(identifier, listed)                                                  \
  static void test_##identifier(void);                                                      \
  __attribute__((constructor)) static void harness_add_##identifier(void) {                 \
    harness_add(#identifier, test_##identifier, listed);                                    \
  }                                                                                         \
  static void test_##identifier(void)

/* A test: TEST(streams_are_handed_out_in_turn) { ... } */
#define TEST(identifier) HARNESS_DEFINE(identifier, 1)

/* A part that a test runs in another process, by executing its own program with this name. Not listed. */
#define HELPER(identifier) HARNESS_DEFINE(identifier, 0)

/* Ends the process at once, from whichever thread finds the fault: what still runs on the device may never finish. */
static inline void harness_fail(const char *file, int line, const char *text) {
  fflush(stdout);
  fprintf(stderr, "%s:%d: %s\n", file, line, text);
  fflush(stderr);
  _exit(1);
}

static inline void harness_check(int held, const char *text, const char *file, int line) {
  if (!held) {
    char message[512];
    snprintf(message, sizeof message, "CHECK(%s) does not hold", text);
    harness_fail(file, line, message);
  }
}

/* A call's status, and what must hold of the message beside it: a success leaves none, a failure always one. */
static inline void harness_check_status(plinth_status_t actual, plinth_status_t expected, const char *text,
                                        const char *file, int line) {
  char message[2048];
  const char *error = plinth_last_error();
  if (actual != expected) {
    snprintf(message, sizeof message, "%s: %s instead of %s; message \"%s\", driver code %d", text,
             plinth_status_name(actual), plinth_status_name(expected), error, (int)plinth_last_driver_error());
    harness_fail(file, line, message);
  }
  if ((actual == PLINTH_OK) != (error[0] == '\0')) {
    snprintf(message, sizeof message, "%s: %s leaves the message \"%s\"", text, plinth_status_name(actual), error);
    harness_fail(file, line, message);
  }
  if (actual == PLINTH_OK && plinth_last_driver_error() != 0) {
    snprintf(message, sizeof message, "%s: a success leaves driver code %d", text, (int)plinth_last_driver_error());
    harness_fail(file, line, message);
  }
}

static inline void harness_check_message(const char *part, const char *file, int line) {
  if (strstr(plinth_last_error(), part) == NULL) {
    char message[2048];
    snprintf(message, sizeof message, "the message lacks \"%s\": \"%s\"", part, plinth_last_error());
    harness_fail(file, line, message);
  }
}

static inline void harness_check_equal(long long actual, long long expected, const char *text, const char *file,
                                       int line) {
  if (actual != expected) {
    char message[512];
    snprintf(message, sizeof message, "%s: %lld (%#llx) instead of %lld (%#llx)", text, actual,
             (unsigned long long)actual, expected, (unsigned long long)expected);
    harness_fail(file, line, message);
  }
}

static inline void harness_check_text(const char *actual, const char *expected, const char *text, const char *file,
                                      int line) {
  if (actual == NULL || strcmp(actual, expected) != 0) {
    char message[2048];
    snprintf(message, sizeof message, "%s: \"%s\" instead of \"%s\"", text, actual ? actual : "(NULL)", expected);
    harness_fail(file, line, message);
  }
}

static inline void harness_skip(const char *reason) {
  fflush(stdout);
  fprintf(stderr, "skipped: %s\n", reason);
  fflush(stderr);
  _exit(HARNESS_SKIPPED);
}

/* A condition that must hold. */
#define CHECK(condition) harness_check((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
/* A call that must succeed. */
#define CHECK_OK(call) harness_check_status((call), PLINTH_OK, #call, __FILE__, __LINE__)
/* A call that must return this status. */
#define CHECK_STATUS(call, status) harness_check_status((call), (status), #call, __FILE__, __LINE__)
/* A text that must be part of the message of the last call. */
#define CHECK_MESSAGE(part) harness_check_message((part), __FILE__, __LINE__)
/* Integers of any kind. */
#define CHECK_EQ(actual, expected) \
  harness_check_equal((long long)(actual), (long long)(expected), #actual, __FILE__, __LINE__)
/* Pointers and handles. */
#define CHECK_SAME(actual, expected) \
  harness_check_equal((long long)(intptr_t)(actual), (long long)(intptr_t)(expected), #actual, __FILE__, __LINE__)
/* Texts. */
#define CHECK_TEXT(actual, expected) harness_check_text((actual), (expected), #actual, __FILE__, __LINE__)
/* Ends the test because this machine cannot run it. */
#define SKIP(reason) harness_skip(reason)

int main(int argc, char **argv) {
  int index;
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (index = 0; index < harness_count; index++) {
      if (harness_tests[index].listed) {
        puts(harness_tests[index].name);
      }
    }
    return 0;
  }
  if (argc >= 2) {
    for (index = 0; index < harness_count; index++) {
      if (strcmp(harness_tests[index].name, argv[1]) == 0) {
        harness_tests[index].run();
        return 0;
      }
    }
    fprintf(stderr, "there is no test %s here\n", argv[1]);
    return 2;
  }
  fprintf(stderr, "usage: %s --list | TEST\n", argv[0]);
  return 2;
}

#endif
