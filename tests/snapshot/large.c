/*
 * Makes a large snapshot: many events, stacks, streams, tags and names, and thousands of live blocks.
 *
 *   large FILE EVENTS [LIVE]    FILE.html or FILE.pickle, by its extension; about EVENTS events, LIVE live blocks (4000)
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <plinth.h>

#include <stdio.h>
#include <stdlib.h>

enum { STREAMS = 6, DEPTH = 6 };
#define KIB ((size_t)1 << 10)

static void check(plinth_status_t status, const char *call) {
  if (status != PLINTH_OK) {
    fprintf(stderr, "%s: %s: %s\n", call, plinth_status_name(status), plinth_last_error());
    exit(1);
  }
}
#define CHECK(call) check((call), #call)

static plinth_stream_t streams[STREAMS];
static unsigned long long state = 1;

/* A generator of Knuth's MMIX, so that every run makes the same history. */
static unsigned draw(unsigned limit) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (unsigned)(state >> 33) % limit;
}

static size_t draw_size(void) {
  const size_t base = (size_t)512 << draw(8);
  return base + draw(64) * base / 64;
}

typedef void *(*layer)(unsigned path, int depth);
static void *call_layer(unsigned path, int depth);

/* Each of these functions calls the next one of a path of digits, so that there are thousands of stacks. */
#define LAYER(name)                                                   \
  static __attribute__((noinline)) void *name(unsigned path, int depth) { \
    void *volatile memory = call_layer(path, depth);                  \
    return memory;                                                    \
  }
LAYER(attention)
LAYER(convolution)
LAYER(embedding)
LAYER(normalization)
static const layer LAYERS[] = {attention, convolution, embedding, normalization};

static __attribute__((noinline)) void *call_layer(unsigned path, int depth) {
  if (depth == 0) {
    void *memory;
    CHECK(plinth_caching_allocator_alloc(draw_size(), 0, streams[draw(STREAMS)], &memory));
    return memory;
  }
  return LAYERS[path % 4](path / 4, depth - 1);
}

static void fail_to_allocate(void) {
  void *memory;
  if (plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &memory) != PLINTH_ERROR_OUT_OF_MEMORY) {
    exit(1);
  }
}

int main(int count, char **arguments) {
  const long long events = count > 2 ? atoll(arguments[2]) : 0;
  const unsigned live = count > 3 ? (unsigned)atoi(arguments[3]) : 4000;
  static const char *const TAGS[] = {"forward", "backward", "optimizer", "data"};
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  void **blocks = calloc(live, sizeof *blocks);
  char name[64];
  if (events < 1 || live < 1 || blocks == NULL) {
    fprintf(stderr, "large FILE EVENTS [LIVE]\n");
    return 2;
  }
  options.record_annotations = 1;
  CHECK(plinth_record_memory_history(&options));
  for (int index = 1; index < STREAMS; index++) {
    CHECK(plinth_stream_create(0, 0, &streams[index]));
    snprintf(name, sizeof name, "stream %c", 'a' + index);
    CHECK(plinth_stream_set_name(streams[index], name));
  }
  /* An allocation and its free make three events. */
  const long long steps = events / 3, phase = steps / 100 + 1;
  for (long long step = 0; step < steps; step++) {
    if (step % phase == 0) {
      CHECK(plinth_set_memory_metadata(TAGS[step / phase % 4]));
      CHECK(plinth_memory_annotation_begin(TAGS[step / phase % 4]));
    }
    const unsigned slot = draw(live);
    if (blocks[slot] != NULL) {
      CHECK(plinth_caching_allocator_delete(blocks[slot]));
    }
    blocks[slot] = LAYERS[draw(4)](draw(1u << 2 * DEPTH), DEPTH);
    if (draw(1000) == 0) {
      snprintf(name, sizeof name, "activation %u", slot);
      CHECK(plinth_memory_set_name(blocks[slot], name));
    }
    if (step % (steps / 10 + 1) == steps / 10) {
      fail_to_allocate();
    }
    if (step % phase == phase - 1 || step == steps - 1) {
      CHECK(plinth_memory_annotation_end(TAGS[step / phase % 4]));
    }
  }
  CHECK(plinth_dump_snapshot(arguments[1]));
  for (unsigned slot = 0; slot < live; slot++) {
    CHECK(plinth_caching_allocator_delete(blocks[slot]));
  }
  free(blocks);
  return 0;
}
