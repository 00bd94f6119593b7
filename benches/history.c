/* Measures the cost of the allocator's history: a pair of an allocation and its free, with the history off, with entries,
 * and with the callers' stacks, at several stack depths.
 *
 * A pair records three entries, as in torch: alloc, free_requested and free_completed; the last two share a stack. The
 * modes alternate, so that changes of the clock frequency affect all of them. Medians over the batches.
 * Build and run: `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

enum { BATCHES = 101, PAIRS = 2000, MODES = 5, DEPTHS = 4 };

static const struct mode {
  const char *name;
  int32_t enabled;
  int32_t context;
} modes[MODES] = {
    {"off", PLINTH_MEMORY_HISTORY_OFF, PLINTH_MEMORY_CONTEXT_NONE},
    {"entries", PLINTH_MEMORY_HISTORY_ALL, PLINTH_MEMORY_CONTEXT_NONE},
    {"live blocks' stacks", PLINTH_MEMORY_HISTORY_STATE, PLINTH_MEMORY_CONTEXT_STATE},
    {"entries, stacks of allocs", PLINTH_MEMORY_HISTORY_ALL, PLINTH_MEMORY_CONTEXT_ALLOC},
    {"entries, all stacks", PLINTH_MEMORY_HISTORY_ALL, PLINTH_MEMORY_CONTEXT_ALL},
};
static const int depths[DEPTHS] = {1, 5, 10, 20};

/* Returns the nanoseconds of a pair. */
static double pairs(void) {
  const double start = now_ns();
  for (int pair = 0; pair < PAIRS; pair++) {
    void *memory;
    MUST(plinth_caching_allocator_alloc(4096, 0, NULL, &memory));
    MUST(plinth_caching_allocator_delete(memory));
  }
  return (now_ns() - start) / PAIRS;
}

/* Calls `pairs` below `depth` stack frames. */
__attribute__((noinline)) static double pairs_at_depth(int depth) {
  const double time = depth <= 1 ? pairs() : pairs_at_depth(depth - 1);
  __asm__ volatile("" ::: "memory"); /* prevents a tail call */
  return time;
}

static void set_mode(const struct mode *mode) {
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  options.enabled = mode->enabled;
  options.context = mode->context;
  options.max_entries = 100000;
  MUST(plinth_record_memory_history(&options));
}

int main(void) {
  static double times[MODES][DEPTHS][BATCHES];
  void *memory;
  MUST(plinth_caching_allocator_alloc(1 << 20, 0, NULL, &memory));
  for (int batch = 0; batch < BATCHES; batch++) {
    for (int mode = 0; mode < MODES; mode++) {
      set_mode(&modes[mode]);
      for (int depth = 0; depth < DEPTHS; depth++) {
        times[mode][depth][batch] = pairs_at_depth(depths[depth]);
      }
    }
  }
  set_mode(&modes[0]);
  MUST(plinth_caching_allocator_delete(memory));
  printf("ns for a pair of alloc and free, by the number of stack frames between main and the call\n%-28s", "history");
  for (int depth = 0; depth < DEPTHS; depth++) {
    printf("%8d", depths[depth]);
  }
  for (int mode = 0; mode < MODES; mode++) {
    printf("\n%-28s", modes[mode].name);
    for (int depth = 0; depth < DEPTHS; depth++) {
      qsort(times[mode][depth], BATCHES, sizeof(double), ascending);
      printf("%8.1f", times[mode][depth][BATCHES / 2]);
    }
  }
  printf("\n");
  return 0;
}
