/*
 * The harness of the C and C++ tests. With `--list` a program prints the names of its tests, and with a name it runs
 * that test. Exit status 0 is a pass, 77 a skip, and everything else a failure.
 *
 * With `--together FD NAME...` a program runs several of its tests, one after the other, and writes a line to the file
 * descriptor FD for each event: `start NAME`, then `passed NAME`, `skipped NAME: REASON` or `left NAME: WHAT`. Between
 * two tests it resets the library and the program's own variables. `left` means that all checks of the test passed but
 * that it left state behind that the reset must not clean up; the process then ends. A test that fails ends the
 * process without another line. run.py runs a test that left state behind, or failed, again in a process of its own.
 *
 * Include it first, because it defines _GNU_SOURCE. It compiles as C99 to C++17.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef HARNESS_H
#define HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <plinth.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether the program is compiled with a sanitizer, which allocates memory of its own. gcc defines a macro; clang has
 * __has_feature. */
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
#define HARNESS_MAX_TESTS 256

typedef struct harness_test {
  const char *name;
  void (*run)(void);
  int listed;
} harness_test;

static harness_test harness_tests[HARNESS_MAX_TESTS];
static int harness_count;

static inline void harness_add(const char *name, void (*run)(void), int listed) {
  if (harness_count == HARNESS_MAX_TESTS) {
    fprintf(stderr, "more than %d tests in a file\n", HARNESS_MAX_TESTS);
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

/* A test: TEST(streams_are_assigned_round_robin) { ... } */
#define TEST(identifier) HARNESS_DEFINE(identifier, 1)

/* A function that a test runs in another process, by executing its own program with this name. Not listed. */
#define HELPER(identifier) HARNESS_DEFINE(identifier, 0)

/* Ends the process at once, from any thread: work that still runs on the device may never finish. */
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

/* Checks a call's status, and that a failure sets an error message and a success none. */
/* Whether a message describes an attempt twice: "replaying a graph: replaying a graph: why". */
static inline int harness_repeats(const char *message) {
  const char *end = strstr(message, ": ");
  while (end != NULL) {
    const size_t length = (size_t)(end - message);
    const char *next = end + 2;
    if (length > 0 && strncmp(message, next, length) == 0 && strncmp(next + length, ": ", 2) == 0) {
      return 1;
    }
    message = next;
    end = strstr(message, ": ");
  }
  return 0;
}

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
  if (harness_repeats(error)) {
    snprintf(message, sizeof message, "%s: the message repeats itself: \"%s\"", text, error);
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

/* The state that `--together` keeps between tests. It is on the heap because the reset restores the program's variables. */
typedef struct harness_session {
  int report;
  pid_t process;
  const char *test;
  jmp_buf skip;
  /* State of the process that a test must not change. */
  char *environment;
  char *directory;
  char *settings;
  void (*handlers[32])(int);
  /* The host device's usage after the last reset. */
  plinth_host_usage_t usage;
  /* The program's initialized and zeroed variables, as they were before the first test. */
  char *variables;
} harness_session;

/* NULL unless the program runs several tests. */
static harness_session *harness_active;

static inline void harness_report(const char *event, const char *test, const char *detail) {
  char line[1024];
  int length = snprintf(line, sizeof line, "%s %s%s%s\n", event, test, detail ? ": " : "", detail ? detail : "");
  if (length >= (int)sizeof line) {
    length = (int)sizeof line - 1;
    line[length - 1] = '\n';
  }
  if (write(harness_active->report, line, (size_t)length) != length) {
    _exit(2);
  }
}

static inline void harness_skip(const char *reason) {
  fflush(stdout);
  fprintf(stderr, "skipped: %s\n", reason);
  fflush(stderr);
  /* A child of a test reports by its exit status, to its parent. */
  if (harness_active != NULL && harness_active->process == getpid()) {
    harness_report("skipped", harness_active->test, reason);
#ifndef __cplusplus
    /* The tests run in the main thread. In C++, longjmp would skip destructors. */
    if (harness_active->process == gettid()) {
      longjmp(harness_active->skip, 1);
    }
#endif
  }
  _exit(HARNESS_SKIPPED);
}

/* A condition that must hold. */
#define CHECK(condition) harness_check((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
/* A call that must succeed. */
#define CHECK_OK(call) harness_check_status((call), PLINTH_OK, #call, __FILE__, __LINE__)
/* A call that must return this status. */
#define CHECK_STATUS(call, status) harness_check_status((call), (status), #call, __FILE__, __LINE__)
/* A string that the error message of the last call must contain. */
#define CHECK_MESSAGE(part) harness_check_message((part), __FILE__, __LINE__)
/* Integers of any kind. */
#define CHECK_EQ(actual, expected) \
  harness_check_equal((long long)(actual), (long long)(expected), #actual, __FILE__, __LINE__)
/* Pointers and handles. */
#define CHECK_SAME(actual, expected) \
  harness_check_equal((long long)(intptr_t)(actual), (long long)(intptr_t)(expected), #actual, __FILE__, __LINE__)
/* Strings. */
#define CHECK_TEXT(actual, expected) harness_check_text((actual), (expected), #actual, __FILE__, __LINE__)
/* Ends the test because this machine cannot run it. */
#define SKIP(reason) harness_skip(reason)


/* The start and the end of the program's variables, as the linker defines them. */
extern char __data_start[] __attribute__((weak));
extern char _end[] __attribute__((weak));

/* C++ variables have constructors and destructors, and a sanitizer keeps its own state among them. */
#if defined(__cplusplus) || HARNESS_SANITIZED
#define HARNESS_RESTORES_VARIABLES 0
#else
#define HARNESS_RESTORES_VARIABLES 1
#endif

static inline char *harness_environment(void) {
  size_t bytes = 1;
  char **entry;
  char *text;
  char *at;
  for (entry = environ; entry != NULL && *entry != NULL; entry++) {
    bytes += strlen(*entry) + 1;
  }
  at = text = (char *)malloc(bytes);
  for (entry = environ; entry != NULL && *entry != NULL; entry++) {
    const size_t length = strlen(*entry);
    memcpy(at, *entry, length);
    at[length] = '\n';
    at += length + 1;
  }
  *at = '\0';
  return text;
}

/* Sets an environment variable that all tests of the program set to the same value, so that it may stay set. */
static inline void harness_setenv(const char *name, const char *value) {
  setenv(name, value, 1);
  if (harness_active != NULL && harness_active->process == getpid()) {
    free(harness_active->environment);
    harness_active->environment = harness_environment();
  }
}

static inline harness_session *harness_begin(int report) {
  harness_session *session = (harness_session *)calloc(1, sizeof *session);
  int number;
  session->report = report;
  session->process = getpid();
  session->environment = harness_environment();
  session->directory = getcwd(NULL, 0);
  if (plinth_get_allocator_settings(&session->settings) != PLINTH_OK) {
    session->settings = NULL;
  }
  for (number = 1; number < 32; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0) {
      session->handlers[number] = action.sa_handler;
    }
  }
  /* A program that a test executes must not inherit it. */
  fcntl(report, F_SETFD, FD_CLOEXEC);
  harness_active = session;
  if (HARNESS_RESTORES_VARIABLES && __data_start != NULL && _end != NULL) {
    const size_t bytes = (size_t)(_end - __data_start);
    session->variables = (char *)malloc(bytes);
    memcpy(session->variables, __data_start, bytes);
  }
  return session;
}

/* Returns what a test changed in the process outside of the library, or NULL. */
static inline const char *harness_left_in_process(const harness_session *session) {
  char *environment = harness_environment();
  char *directory = getcwd(NULL, 0);
  const char *left = NULL;
  int number;
  if (strcmp(environment, session->environment) != 0) {
    left = "the environment is changed";
  }
  if (directory == NULL || session->directory == NULL || strcmp(directory, session->directory) != 0) {
    left = "the working directory is changed";
  }
  for (number = 1; number < 32; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != session->handlers[number]) {
      left = "a signal handler is changed";
    }
  }
  if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
    left = "a child process was not waited for";
  }
  free(environment);
  free(directory);
  return left;
}

#define HARNESS_RESET(call)                                                                        \
  do {                                                                                             \
    if ((call) != PLINTH_OK) {                                                                     \
      static char harness_message[512];                                                            \
      snprintf(harness_message, sizeof harness_message, "%s fails: %s", #call, plinth_last_error()); \
      return harness_message;                                                                      \
    }                                                                                              \
  } while (0)

#define HARNESS_LEFT(condition, text) \
  do {                                \
    if (condition) {                  \
      return (text);                  \
    }                                 \
  } while (0)

/* Whether a device has a context. Synchronizing a device would create one. */
static inline int harness_has_context(int32_t device) {
  int (*get)(int *, int) = NULL;
  int (*state)(int, unsigned *, int *) = NULL;
  int native = -1;
  unsigned flags = 0;
  int active = 0;
  return plinth_driver_entry_point("cuDeviceGet", (void **)&get) == PLINTH_OK &&
         plinth_driver_entry_point("cuDevicePrimaryCtxGetState", (void **)&state) == PLINTH_OK &&
         get(&native, device) == 0 && state(native, &flags, &active) == 0 && active != 0;
}

/* Resets the library to its state after initialization. Returns what a test left behind, or NULL. Memory of
 * plinth_device_malloc and plinth_pinned_malloc may stay: it is not in a cache, and no statistics count it. */
static inline const char *harness_reset_library(harness_session *session) {
  int32_t count = 0;
  int32_t device;
  int32_t kind = -1;
  bool capturing = true;
  char *settings = NULL;
  size_t bytes = 0;
  double fraction = 0;
  plinth_stream_t stream = NULL;
  plinth_host_memory_stats_t pinned = PLINTH_HOST_MEMORY_STATS_INIT;
  if (!plinth_is_initialized()) {
    return NULL;
  }
  HARNESS_RESET(plinth_is_current_stream_capturing(&capturing));
  HARNESS_LEFT(capturing, "the current stream is capturing");
  HARNESS_RESET(plinth_set_sync_debug_mode(0));
  HARNESS_RESET(plinth_set_sync_debug_callback(NULL, NULL));
  HARNESS_RESET(plinth_set_log_callback(PLINTH_LOG_WARNING, NULL, NULL));
  HARNESS_RESET(plinth_device_count(&count));
  for (device = 0; device < count; device++) {
    if (harness_has_context(device)) {
      HARNESS_RESET(plinth_synchronize(device));
      HARNESS_RESET(plinth_cufft_plan_cache_clear(device));
    }
  }
  HARNESS_RESET(plinth_clear_blas_workspaces());
  HARNESS_RESET(plinth_empty_cache());
  HARNESS_RESET(plinth_host_empty_cache());
  for (device = 0; device < count; device++) {
    HARNESS_RESET(plinth_memory_allocated(device, &bytes));
    HARNESS_LEFT(bytes != 0, "memory of the caching allocator was not freed");
    HARNESS_RESET(plinth_memory_reserved(device, &bytes));
    HARNESS_LEFT(bytes != 0, "the caching allocator still reserves memory");
    HARNESS_RESET(plinth_get_per_process_memory_fraction(device, &fraction));
    if (fraction != 1.0) {
      HARNESS_RESET(plinth_set_per_process_memory_fraction(1.0, device));
    }
    HARNESS_RESET(plinth_default_stream(device, &stream));
    HARNESS_RESET(plinth_set_device(device));
    HARNESS_RESET(plinth_set_stream(stream));
    HARNESS_RESET(plinth_reset_peak_memory_stats(device));
    HARNESS_RESET(plinth_reset_accumulated_memory_stats(device));
  }
  HARNESS_RESET(plinth_host_memory_stats(&pinned));
  HARNESS_LEFT(pinned.active_bytes.current != 0, "pinned memory was not freed");
  HARNESS_RESET(plinth_reset_peak_host_memory_stats());
  HARNESS_RESET(plinth_reset_accumulated_host_memory_stats());
  if (count > 0) {
    HARNESS_RESET(plinth_set_device(0));
  }
  HARNESS_RESET(plinth_get_allocator_settings(&settings));
  {
    const int same = session->settings != NULL && strcmp(settings, session->settings) == 0;
    plinth_string_free(settings);
    HARNESS_LEFT(!same, "the allocator's settings are changed");
  }
  HARNESS_RESET(plinth_get_device_kind(&kind));
  if (kind == PLINTH_DEVICE_HOST) {
    plinth_host_usage_t usage = PLINTH_HOST_USAGE_INIT;
    const plinth_host_usage_t before = session->usage;
    HARNESS_RESET(plinth_host_usage(&usage));
    session->usage = usage;
    HARNESS_LEFT(usage.graphs > before.graphs, "a graph was not destroyed");
    HARNESS_LEFT(usage.executable_graphs > before.executable_graphs, "an executable graph was not destroyed");
  }
  return NULL;
}

/* Runs these tests one after the other, and reports each. */
static inline int harness_run_together(int report, int count, char **names) {
  harness_session *session = harness_begin(report);
  int position;
  for (position = 0; position < count; position++) {
    const harness_test *found = NULL;
    const char *left;
    int index;
    volatile int skipped = 0;
    volatile int current = position;
    for (index = 0; index < harness_count; index++) {
      if (strcmp(harness_tests[index].name, names[position]) == 0) {
        found = &harness_tests[index];
      }
    }
    if (found == NULL) {
      fprintf(stderr, "there is no test %s here\n", names[position]);
      return 2;
    }
    session->test = found->name;
    harness_report("start", session->test, NULL);
    if (setjmp(session->skip) == 0) {
      found->run();
    } else {
      skipped = 1;
    }
    position = current;
    fflush(NULL);
    left = harness_left_in_process(session);
    if (left == NULL) {
      left = harness_reset_library(session);
    }
    if (left != NULL) {
      /* The tests that follow run in a new process. */
      if (!skipped) {
        harness_report("left", session->test, left);
      }
      _exit(0);
    }
    if (!skipped) {
      harness_report("passed", session->test, NULL);
    }
    if (session->variables != NULL) {
      /* `environ` may be one of them, which the compiler does not know. harness_left_in_process has checked the environment. */
      char **volatile saved_environ = environ;
      memcpy(__data_start, session->variables, (size_t)(_end - __data_start));
      __asm__ volatile("" ::: "memory");
      environ = saved_environ;
    }
  }
  return 0;
}

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
  if (argc >= 4 && strcmp(argv[1], "--together") == 0) {
    return harness_run_together(atoi(argv[2]), argc - 3, argv + 3);
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
  fprintf(stderr, "usage: %s --list | TEST | --together FD TEST...\n", argv[0]);
  return 2;
}

#endif
