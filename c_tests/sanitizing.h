/*
 * Helpers of the stream sanitizer's tests: operations on memory, and expected reports.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef SANITIZING_H
#define SANITIZING_H

#include "allocating.h"

#define READ PLINTH_SANITIZER_READ
#define WRITE PLINTH_SANITIZER_WRITE

enum { CPU_DEVICE = -1, MAX_FINDINGS = 64 };

/* One access of a report, as a test expects it. */
typedef struct side {
  const char *name;
  plinth_stream_t stream;
  int32_t device;
  uint32_t kind;
} side;

/* A copy of a report. */
typedef struct finding {
  int32_t kind;
  int32_t missing;
  uint64_t address;
  uint64_t bytes;
  uint64_t times;
  plinth_sanitizer_side_t access;
  plinth_sanitizer_side_t previous;
  char name[64];
  char previous_name[64];
} finding;

static finding findings[MAX_FINDINGS];
static size_t found;

static inline void collect_finding(const plinth_sanitizer_report_t *report, void *context) {
  finding *out = &findings[found];
  (void)context;
  CHECK(found < MAX_FINDINGS);
  CHECK_EQ(report->struct_size, sizeof *report);
  CHECK(report->text[0] != '\0' && report->json[0] == '{');
  CHECK(report->access->name != NULL && strstr(report->text, report->access->name) != NULL);
  out->kind = report->kind;
  out->missing = report->missing;
  out->address = report->address;
  out->bytes = report->bytes;
  out->times = report->times;
  out->access = *report->access;
  out->previous = *report->previous;
  snprintf(out->name, sizeof out->name, "%s", report->access->name);
  snprintf(out->previous_name, sizeof out->previous_name, "%s", report->previous->name ? report->previous->name : "");
  found++;
}

static inline void read_findings(void) {
  size_t count = UNTOUCHED;
  found = 0;
  CHECK_OK(plinth_sanitizer_each(collect_finding, NULL));
  CHECK_OK(plinth_sanitizer_count(&count, NULL));
  CHECK_EQ(count, found);
}

/* Prints all reports, to explain a failure. */
static inline void print_findings(void) {
  char *text = NULL;
  CHECK_OK(plinth_sanitizer_text(&text));
  fprintf(stderr, "%s", text);
  plinth_string_free(text);
}

/* Expects no report. */
static inline void expect_clean(const char *file, int line) {
  read_findings();
  if (found != 0) {
    print_findings();
    harness_fail(file, line, "the program has no race, but the sanitizer reported one");
  }
}

static inline bool is_side(const plinth_sanitizer_side_t *actual, const char *name, side expected) {
  return strcmp(name, expected.name) == 0 && actual->stream == expected.stream && actual->device == expected.device &&
         actual->kind == expected.kind;
}

/* Expects exactly one report, found once, of these bytes and these two accesses. */
static inline void expect_report(int32_t kind, int32_t missing, const void *address, size_t bytes, side access,
                                 side previous, const char *file, int line) {
  const finding *one = &findings[0];
  read_findings();
  const bool right = found == 1 && one->kind == kind && one->missing == missing && one->times == 1 &&
                     one->address == (uint64_t)(uintptr_t)address && one->bytes == bytes &&
                     is_side(&one->access, one->name, access) &&
                     (previous.name == NULL ? one->previous.name == NULL
                                            : is_side(&one->previous, one->previous_name, previous)) &&
                     (previous.name == NULL || one->previous.operation < one->access.operation);
  if (!right) {
    fprintf(stderr, "%d reports; %d bytes at %#llx were expected, by \"%s\" after \"%s\"\n", (int)found, (int)bytes,
            (unsigned long long)(uintptr_t)address, access.name, previous.name == NULL ? "" : previous.name);
    print_findings();
    harness_fail(file, line, "the reports are not the expected one");
  }
}

static const side no_access = {NULL, NULL, 0, 0};

#define CLEAN() expect_clean(__FILE__, __LINE__)
/* RACE(missing, address, bytes, access, previous) */
#define RACE(...) expect_report(PLINTH_SANITIZER_RACE, __VA_ARGS__, __FILE__, __LINE__)
#define REUSE(...) expect_report(PLINTH_SANITIZER_REUSE, __VA_ARGS__, __FILE__, __LINE__)
#define USE_AFTER_FREE(address, bytes, access)                                                                           \
  expect_report(PLINTH_SANITIZER_USE_AFTER_FREE, PLINTH_SANITIZER_MISSING_LATER_FREE, address, bytes, access, no_access, \
                __FILE__, __LINE__)
#define MISSING_WAIT PLINTH_SANITIZER_MISSING_WAIT
#define LATER_WAIT PLINTH_SANITIZER_MISSING_LATER_WAIT
#define RECORD_STREAM PLINTH_SANITIZER_MISSING_RECORD_STREAM

static inline side in_stream(const char *name, uint32_t kind, plinth_stream_t stream, int32_t device) {
  const side one = {name, stream, device, kind};
  return one;
}

static inline side reads(const char *name, plinth_stream_t stream) { return in_stream(name, READ, stream, 0); }
static inline side writes(const char *name, plinth_stream_t stream) { return in_stream(name, WRITE, stream, 0); }

/* Enables the sanitizer for a program that it is to check. */
static inline void enable_sanitizer(void) { CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT)); }

/* A kernel launch by the program, as the sanitizer sees it. */
static inline void kernel(const char *name, uint32_t kind, const void *pointer, size_t bytes, plinth_stream_t stream) {
  plinth_sanitizer_access_t access = PLINTH_SANITIZER_ACCESS_INIT;
  access.pointer = pointer;
  access.bytes = bytes;
  access.kind = kind;
  CHECK_OK(plinth_sanitizer_operation(name, &access, 1, stream));
}

static inline void on_cpu(const char *name, uint32_t kind, const void *pointer, size_t bytes) {
  plinth_sanitizer_access_t access = PLINTH_SANITIZER_ACCESS_INIT;
  access.pointer = pointer;
  access.bytes = bytes;
  access.kind = kind;
  CHECK_OK(plinth_sanitizer_host_operation(name, &access, 1));
}

static inline void wait_for(plinth_stream_t waiting, plinth_stream_t awaited) {
  CHECK_OK(plinth_stream_wait_stream(waiting, awaited));
}

#endif
