/* What each call of the allocator takes while kernels hold the streams whose memory it is about.
 *
 * In each round a kernel of some 100 ms runs in the stream that memory is allocated for, and one in another stream that
 * uses it; then one call is timed, and both kernels must still run. A call that waited for either would take as long.
 * The table shows the median and the longest of the rounds. Build and run: `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

enum { ROUNDS = 9, LEFT = 64, MANY = 16 };
#define MIB ((size_t)1 << 20)

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static plinth_stream_t own, other, idle;
static uint64_t cycles = 200000000;
static void *memory;
static plinth_pool_id_t pool;
static size_t held;

static void *block(size_t bytes, plinth_stream_t stream) {
  void *given = NULL;
  MUST(plinth_caching_allocator_alloc(bytes, 0, stream, &given));
  return given;
}

static void give_back(void *given) { MUST(plinth_caching_allocator_delete(given)); }

static size_t reserved(void) {
  size_t bytes = 0;
  MUST(plinth_memory_reserved(0, &bytes));
  return bytes;
}

static void limit(size_t bytes) {
  size_t available = 0, total = 0;
  MUST(plinth_mem_get_info(0, &available, &total));
  MUST(plinth_set_per_process_memory_fraction(bytes == 0 ? 1.0 : ((double)bytes + 4096.0) / (double)total, 0));
}

/* Every case: what comes before the kernels, what comes while they run but before the call, the call, and what comes after
 * them. */
static void no_more(void) {}
static void free_memory(void) { give_back(memory); }
static void alloc_4(void) { memory = block(4 * MIB, own); }
static void alloc_64(void) { memory = block(64 * MIB, own); }
static void alloc_small(void) { memory = block(1000, own); }

static void cache_4(void) { give_back(block(4 * MIB, own)); }
static void cache_small(void) { give_back(block(1000, own)); }

/* 64 MiB lie free where they can be moved from, and nothing may be added. */
static void cache_in(plinth_stream_t stream) {
  give_back(block(64 * MIB, stream));
  MUST(plinth_synchronize(0));
  held = reserved();
  limit(held);
}
static void cache_idle(void) { cache_in(idle); }
static void cache_busy(void) { cache_in(other); }
static int not_moved;
static void check_moved(void) {
  if (reserved() > held) {
    fprintf(stderr, "nowait: the memory was not moved: %zu bytes are held, after %zu\n", reserved(), held);
    not_moved = 1;
  }
  limit(0);
  give_back(memory);
}

static void record(void) { MUST(plinth_record_stream(memory, other)); }
static void alloc_recorded(void) {
  alloc_4();
  record();
}

static void *pieces[LEFT];
static void alloc_many(void) {
  for (int index = 0; index < LEFT; index++) pieces[index] = block(2 * MIB, own);
}
static void free_half(void) {
  for (int index = 0; index < LEFT; index++) {
    MUST(plinth_record_stream(pieces[index], other));
    if (index % 2) give_back(pieces[index]);
  }
}
static void free_rest(void) {
  for (int index = 0; index < LEFT; index += 2) give_back(pieces[index]);
}
static plinth_stream_t streams[MANY];
static void cache_in_many(void) {
  for (int index = 0; index < MANY; index++) give_back(block(4 * MIB, streams[index]));
}
static void hold_many(void) {
  for (int index = 0; index < MANY; index++) MUST(plinth_sleep(cycles, streams[index]));
}
static void empty(void) { MUST(plinth_empty_cache()); }

static void make_pool(void) { MUST(plinth_mem_pool_create(false, false, &pool)); }
static void begin_pool(void) { MUST(plinth_begin_allocate_current_thread_to_pool(0, pool)); }
static void end_pool(void) { MUST(plinth_end_allocate_to_pool(0, pool)); }
static void release_pool(void) { MUST(plinth_release_pool(0, pool)); }
static void destroy_pool(void) { MUST(plinth_mem_pool_destroy(pool)); }
static void begun_pool(void) {
  make_pool();
  begin_pool();
}
static void end_begun_pool(void) {
  end_pool();
  release_pool();
  destroy_pool();
}
/* A pool with free memory of the busy stream, which goes back with its last user. */
static void filled_pool(void) {
  begun_pool();
  give_back(block(32 * MIB, own));
  end_pool();
}
static void filled_pool_of_one(void) {
  filled_pool();
  MUST(plinth_mem_pool_destroy(pool));
}
static void filled_pool_released(void) {
  filled_pool();
  release_pool();
}
static void alloc_in_pool(void) { memory = block(8 * MIB, own); }
static void free_in_pool(void) {
  give_back(memory);
  end_begun_pool();
}

static void counters(void) {
  size_t bytes;
  MUST(plinth_memory_allocated(0, &bytes));
  MUST(plinth_memory_reserved(0, &bytes));
  MUST(plinth_max_memory_allocated(0, &bytes));
  MUST(plinth_max_memory_reserved(0, &bytes));
}
static void summary(void) {
  char *text = NULL;
  MUST(plinth_memory_summary(0, false, &text));
  plinth_string_free(text);
}
static void reset_peaks(void) { MUST(plinth_reset_peak_memory_stats(0)); }

static const struct row {
  const char *name;
  void (*before)(void);
  void (*prepare)(void);
  void (*call)(void);
  void (*after)(void);
} rows[] = {
    {"alloc, 1000 bytes that are cached", cache_small, no_more, alloc_small, free_memory},
    {"alloc, 4 MiB that are cached", cache_4, no_more, alloc_4, free_memory},
    {"alloc, 1000 bytes, new memory", no_more, no_more, alloc_small, free_memory},
    {"alloc, 64 MiB, new memory", no_more, no_more, alloc_64, free_memory},
    {"alloc, 64 MiB, moved from an idle stream", cache_idle, no_more, alloc_64, check_moved},
    {"alloc, 64 MiB, moved from a busy stream", cache_busy, no_more, alloc_64, check_moved},
    {"delete, 4 MiB", alloc_4, no_more, free_memory, no_more},
    {"record_stream", alloc_4, no_more, record, free_memory},
    {"delete, 4 MiB that a busy stream uses", alloc_recorded, no_more, free_memory, no_more},
    {"empty_cache, 64 MiB of a busy stream", cache_busy, no_more, empty, no_more},
    {"empty_cache, with blocks that wait", alloc_many, free_half, empty, free_rest},
    {"empty_cache, 4 MiB of each of 16 busy streams", cache_in_many, hold_many, empty, no_more},
    {"mem_pool_create", no_more, no_more, make_pool, destroy_pool},
    {"begin_allocate_current_thread_to_pool", make_pool, no_more, begin_pool, end_begun_pool},
    {"alloc, 8 MiB, in a pool, new memory", begun_pool, no_more, alloc_in_pool, free_in_pool},
    {"end_allocate_to_pool", begun_pool, no_more, end_pool, no_more},
    {"release_pool, 32 MiB of a busy stream", filled_pool_of_one, no_more, release_pool, no_more},
    {"mem_pool_destroy, 32 MiB of a busy stream", filled_pool_released, no_more, destroy_pool, no_more},
    {"memory_allocated, _reserved and their peaks", alloc_recorded, no_more, counters, free_memory},
    {"memory_summary", alloc_recorded, no_more, summary, free_memory},
    {"reset_peak_memory_stats", alloc_recorded, no_more, reset_peaks, free_memory},
};

static void hold(void) {
  MUST(plinth_sleep(cycles, own));
  MUST(plinth_sleep(cycles, other));
}

static bool still_held(void) {
  bool done = true, other_done = true;
  MUST(plinth_stream_query(own, &done));
  MUST(plinth_stream_query(other, &other_done));
  return !done && !other_done;
}

static int measure(const struct row *row) {
  double taken[ROUNDS];
  int waited = 0;
  for (int round = 0; round < ROUNDS; round++) {
    /* Nothing is cached, so that what is meant to be new is new. */
    MUST(plinth_synchronize(0));
    limit(0);
    MUST(plinth_empty_cache());
    row->before();
    hold();
    row->prepare();
    const double begin = now_us();
    row->call();
    taken[round] = now_us() - begin;
    if (!still_held()) waited++;
    MUST(plinth_synchronize(0));
    limit(0);
    row->after();
  }
  qsort(taken, ROUNDS, sizeof taken[0], ascending);
  printf("| %-45s | %9.1f | %9.1f | %-10s |\n", row->name, taken[ROUNDS / 2], taken[ROUNDS - 1],
         waited == 0 ? "yes" : "NO, waited");
  fflush(stdout);
  return waited;
}

int main(void) {
  int waited = 0;
  double begin, length;
  MUST(plinth_init());
  MUST(plinth_set_device(0));
  MUST(plinth_stream_create(0, 0, &own));
  MUST(plinth_stream_create(0, 0, &other));
  MUST(plinth_stream_create(0, 0, &idle));
  for (int index = 0; index < MANY; index++) MUST(plinth_stream_create(0, 0, &streams[index]));
  /* Loads the kernel, and then sees how long it takes. */
  MUST(plinth_sleep(1000, own));
  MUST(plinth_synchronize(0));
  begin = now_us();
  MUST(plinth_sleep(cycles / 10, own));
  MUST(plinth_synchronize(0));
  length = now_us() - begin;
  cycles = (uint64_t)((double)cycles / 10 * 100e3 / length);
  printf("Kernels hold the streams for 100 ms; microseconds a call, of %d.\n\n", ROUNDS);
  printf("| %-45s | %9s | %9s | still held |\n|---|---|---|---|\n", "call", "median", "longest");
  for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) waited += measure(&rows[index]);
  printf("\n%s\n", waited == 0 ? "No call waited for a kernel." : "Some calls waited for a kernel.");
  return waited != 0 || not_moved;
}
