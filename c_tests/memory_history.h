/*
 * Helpers of the tests of the allocator's history.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MEMORY_HISTORY_H
#define MEMORY_HISTORY_H

#include "allocating.h"

#define BIT(action) (1U << PLINTH_MEMORY_ACTION_##action)
#define SEGMENTS (BIT(SEGMENT_ALLOC) | BIT(SEGMENT_FREE) | BIT(SEGMENT_MAP) | BIT(SEGMENT_UNMAP))

enum { MAX_ENTRIES = 1 << 17, MAX_FRAMES = 256 };

typedef struct entry {
  plinth_memory_history_entry_t raw;
  char metadata[64];
} entry;

static entry *entries;
static int entry_count;

static inline void collect_entry(const plinth_memory_history_entry_t *reported, void *context) {
  entry *copy = &entries[entry_count++];
  CHECK(context == &entry_count);
  CHECK(entry_count <= MAX_ENTRIES);
  copy->raw = *reported;
  snprintf(copy->metadata, sizeof copy->metadata, "%s", reported->metadata);
}

static inline void clear_entries(void) {
  if (entries == NULL) {
    entries = (entry *)calloc(MAX_ENTRIES, sizeof *entries);
    CHECK(entries != NULL);
  }
  entry_count = 0;
}

/* Reads the history of a device into `entries`, and checks that times do not decrease. */
static inline int read_history(int32_t device) {
  int index;
  clear_entries();
  CHECK_OK(plinth_memory_history_each(device, collect_entry, &entry_count));
  for (index = 1; index < entry_count; index++) {
    CHECK(entries[index - 1].raw.time_us <= entries[index].raw.time_us);
  }
  return entry_count;
}

static inline plinth_memory_history_options_t history_options(void) {
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  return options;
}

/* Records all actions except those on segments, whose number depends on the allocator. */
static inline void record_blocks(int32_t context, uint64_t max_entries) {
  plinth_memory_history_options_t options = history_options();
  options.context = context;
  options.max_entries = max_entries;
  options.skip_actions = SEGMENTS;
  CHECK_OK(plinth_record_memory_history(&options));
}

static inline void stop_recording(void) {
  plinth_memory_history_options_t options = history_options();
  options.enabled = PLINTH_MEMORY_HISTORY_OFF;
  CHECK_OK(plinth_record_memory_history(&options));
}

static inline void expect_entry(int index, int32_t action, const void *address, size_t size) {
  CHECK(index < entry_count);
  CHECK_TEXT(plinth_memory_action_name(entries[index].raw.action), plinth_memory_action_name(action));
  CHECK_EQ(entries[index].raw.address, (uintptr_t)address);
  CHECK_EQ(entries[index].raw.size, size);
}

typedef struct frame {
  char name[256];
  char file[512];
  uint32_t line;
} frame;

static frame frames[MAX_FRAMES];
static int frame_count;

static inline void collect_frame(const char *name, const char *file, uint32_t line, void *context) {
  frame *copy = &frames[frame_count++];
  CHECK(context == &frame_count);
  CHECK(frame_count <= MAX_FRAMES);
  snprintf(copy->name, sizeof copy->name, "%s", name);
  snprintf(copy->file, sizeof copy->file, "%s", file);
  copy->line = line;
}

static inline int read_stack(uint32_t stack) {
  frame_count = 0;
  CHECK_OK(plinth_memory_stack_each(stack, collect_frame, &frame_count));
  return frame_count;
}

/* Returns the index of the innermost frame of this function. Prints the stack and fails if there is none. */
static inline int frame_of(const char *name) {
  int index;
  for (index = 0; index < frame_count; index++) {
    if (strcmp(frames[index].name, name) == 0) {
      return index;
    }
  }
  for (index = 0; index < frame_count; index++) {
    fprintf(stderr, "%s %s:%u\n", frames[index].name, frames[index].file, (unsigned)frames[index].line);
  }
  harness_fail(__FILE__, __LINE__, name);
  return -1;
}

static inline void expect_frame(const char *name, const char *file, int line) {
  const frame *found = &frames[frame_of(name)];
  const char *base = strrchr(found->file, '/');
  CHECK_TEXT(base != NULL ? base + 1 : found->file, file);
  CHECK_EQ(found->line, line);
}

#endif
