/*
 * What the tests of the allocator's history share.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MEMORY_HISTORY_H
#define MEMORY_HISTORY_H

#include "allocating.h"

#define BIT(action) (1U << PLINTH_MEMORY_ACTION_##action)
#define SEGMENTS (BIT(SEGMENT_ALLOC) | BIT(SEGMENT_FREE) | BIT(SEGMENT_MAP) | BIT(SEGMENT_UNMAP))

enum { MOST_ENTRIES = 1 << 17, MOST_FRAMES = 256 };

typedef struct entry {
  plinth_memory_history_entry_t raw;
  char metadata[64];
} entry;

static entry *entries;
static int entry_count;

static inline void keep_entry(const plinth_memory_history_entry_t *shown, void *context) {
  entry *kept = &entries[entry_count++];
  CHECK(context == &entry_count);
  CHECK(entry_count <= MOST_ENTRIES);
  kept->raw = *shown;
  snprintf(kept->metadata, sizeof kept->metadata, "%s", shown->metadata);
}

static inline void clear_entries(void) {
  if (entries == NULL) {
    entries = (entry *)calloc(MOST_ENTRIES, sizeof *entries);
    CHECK(entries != NULL);
  }
  entry_count = 0;
}

/* Reads the history of a device into `entries`, and checks what holds of every one: times do not go back. */
static inline int read_history(int32_t device) {
  int index;
  clear_entries();
  CHECK_OK(plinth_memory_history_each(device, keep_entry, &entry_count));
  for (index = 1; index < entry_count; index++) {
    CHECK(entries[index - 1].raw.time_us <= entries[index].raw.time_us);
  }
  return entry_count;
}

static inline plinth_memory_history_options_t history_options(void) {
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  return options;
}

/* Keeps everything but what happens to segments, which is the allocator's own affair. */
static inline void record_blocks(int32_t context, uint64_t max_entries) {
  plinth_memory_history_options_t options = history_options();
  options.context = context;
  options.max_entries = max_entries;
  options.skip_actions = SEGMENTS;
  CHECK_OK(plinth_record_memory_history(&options));
}

static inline void record_nothing(void) {
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

static frame frames[MOST_FRAMES];
static int frame_count;

static inline void keep_frame(const char *name, const char *file, uint32_t line, void *context) {
  frame *kept = &frames[frame_count++];
  CHECK(context == &frame_count);
  CHECK(frame_count <= MOST_FRAMES);
  snprintf(kept->name, sizeof kept->name, "%s", name);
  snprintf(kept->file, sizeof kept->file, "%s", file);
  kept->line = line;
}

static inline int read_stack(uint32_t stack) {
  frame_count = 0;
  CHECK_OK(plinth_memory_stack_each(stack, keep_frame, &frame_count));
  return frame_count;
}

/* The index of the innermost function of this name; fails, and shows the stack, if there is none. */
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
