/* Measures each call of the allocator while kernels occupy the streams of its memory.
 *
 * In each round a kernel of some 100 ms runs in the stream that memory is allocated for, and one in another stream that
 * uses it. Then one call is timed, and both kernels must still run afterwards. A call that waits for a kernel takes as
 * long as that. The table shows the median and the maximum of the rounds. Build and run: `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

enum { ROUNDS = 9, BLOCKS = 64, STREAMS = 16 };
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
  void *address = NULL;
  MUST(plinth_caching_allocator_alloc(bytes, 0, stream, &address));
  return address;
}

static void free_block(void *address) { MUST(plinth_caching_allocator_delete(address)); }

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

/* The functions of the cases: before the kernels, while they run but before the call, the call, and after the kernels. */
static void nothing(void) {}
static void free_memory(void) { free_block(memory); }
static void alloc_4(void) { memory = block(4 * MIB, own); }
static void alloc_64(void) { memory = block(64 * MIB, own); }
static void alloc_small(void) { memory = block(1000, own); }

static void cache_4(void) { free_block(block(4 * MIB, own)); }
static void cache_small(void) { free_block(block(1000, own)); }

/* Caches 64 MiB of a stream, and limits the allocator to what it holds, so that it must move them. */
static void cache_in(plinth_stream_t stream) {
  free_block(block(64 * MIB, stream));
  MUST(plinth_synchronize(0));
  held = reserved();
  limit(held);
}
static void cache_idle(void) { cache_in(idle); }
static void cache_busy(void) { cache_in(other); }
static int not_moved;
static void check_moved(void) {
  if (reserved() > held) {
    fprintf(stderr, "nowait: the memory was not moved: the allocator holds %zu bytes, before %zu\n", reserved(), held);
    not_moved = 1;
  }
  limit(0);
  free_block(memory);
}

static void record(void) { MUST(plinth_record_stream(memory, other)); }
static void alloc_recorded(void) {
  alloc_4();
  record();
}

static void *blocks[BLOCKS];
static void alloc_many(void) {
  for (int index = 0; index < BLOCKS; index++) blocks[index] = block(2 * MIB, own);
}
static void free_half(void) {
  for (int index = 0; index < BLOCKS; index++) {
    MUST(plinth_record_stream(blocks[index], other));
    if (index % 2) free_block(blocks[index]);
  }
}
static void free_rest(void) {
  for (int index = 0; index < BLOCKS; index += 2) free_block(blocks[index]);
}
static plinth_stream_t streams[STREAMS];
static void cache_in_streams(void) {
  for (int index = 0; index < STREAMS; index++) free_block(block(4 * MIB, streams[index]));
}
static void occupy_streams(void) {
  for (int index = 0; index < STREAMS; index++) MUST(plinth_sleep(cycles, streams[index]));
}
static void empty(void) { MUST(plinth_empty_cache()); }

static void make_pool(void) { MUST(plinth_mem_pool_create(false, false, &pool)); }
static void begin_pool(void) { MUST(plinth_begin_allocate_current_thread_to_pool(0, pool)); }
static void end_pool(void) { MUST(plinth_end_allocate_to_pool(0, pool)); }
static void release_pool(void) { MUST(plinth_release_pool(0, pool)); }
static void destroy_pool(void) { MUST(plinth_mem_pool_destroy(pool)); }
static void make_and_begin_pool(void) {
  make_pool();
  begin_pool();
}
static void end_and_destroy_pool(void) {
  end_pool();
  release_pool();
  destroy_pool();
}
/* Makes a pool with free memory of the busy stream, which is released with the pool's last user. */
static void make_filled_pool(void) {
  make_and_begin_pool();
  free_block(block(32 * MIB, own));
  end_pool();
}
static void make_filled_pool_without_owner(void) {
  make_filled_pool();
  MUST(plinth_mem_pool_destroy(pool));
}
static void make_filled_released_pool(void) {
  make_filled_pool();
  release_pool();
}
static void alloc_in_pool(void) { memory = block(8 * MIB, own); }
static void free_in_pool(void) {
  free_block(memory);
  end_and_destroy_pool();
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
    {"alloc, 1000 bytes that are cached", cache_small, nothing, alloc_small, free_memory},
    {"alloc, 4 MiB that are cached", cache_4, nothing, alloc_4, free_memory},
    {"alloc, 1000 bytes, new memory", nothing, nothing, alloc_small, free_memory},
    {"alloc, 64 MiB, new memory", nothing, nothing, alloc_64, free_memory},
    {"alloc, 64 MiB, moved from an idle stream", cache_idle, nothing, alloc_64, check_moved},
    {"alloc, 64 MiB, moved from a busy stream", cache_busy, nothing, alloc_64, check_moved},
    {"delete, 4 MiB", alloc_4, nothing, free_memory, nothing},
    {"record_stream", alloc_4, nothing, record, free_memory},
    {"delete, 4 MiB that a busy stream uses", alloc_recorded, nothing, free_memory, nothing},
    {"empty_cache, 64 MiB of a busy stream", cache_busy, nothing, empty, nothing},
    {"empty_cache, with blocks whose free is deferred", alloc_many, free_half, empty, free_rest},
    {"empty_cache, 4 MiB of each of 16 busy streams", cache_in_streams, occupy_streams, empty, nothing},
    {"mem_pool_create", nothing, nothing, make_pool, destroy_pool},
    {"begin_allocate_current_thread_to_pool", make_pool, nothing, begin_pool, end_and_destroy_pool},
    {"alloc, 8 MiB, in a pool, new memory", make_and_begin_pool, nothing, alloc_in_pool, free_in_pool},
    {"end_allocate_to_pool", make_and_begin_pool, nothing, end_pool, nothing},
    {"release_pool, 32 MiB of a busy stream", make_filled_pool_without_owner, nothing, release_pool, nothing},
    {"mem_pool_destroy, 32 MiB of a busy stream", make_filled_released_pool, nothing, destroy_pool, nothing},
    {"memory_allocated, _reserved and their peaks", alloc_recorded, nothing, counters, free_memory},
    {"memory_summary", alloc_recorded, nothing, summary, free_memory},
    {"reset_peak_memory_stats", alloc_recorded, nothing, reset_peaks, free_memory},
};

static void occupy(void) {
  MUST(plinth_sleep(cycles, own));
  MUST(plinth_sleep(cycles, other));
}

static bool still_occupied(void) {
  bool done = true, other_done = true;
  MUST(plinth_stream_query(own, &done));
  MUST(plinth_stream_query(other, &other_done));
  return !done && !other_done;
}

static int measure(const struct row *row) {
  double taken[ROUNDS];
  int waited = 0;
  for (int round = 0; round < ROUNDS; round++) {
    /* The cache is emptied, so that the cases with new memory really create it. */
    MUST(plinth_synchronize(0));
    limit(0);
    MUST(plinth_empty_cache());
    row->before();
    occupy();
    row->prepare();
    const double begin = now_us();
    row->call();
    taken[round] = now_us() - begin;
    if (!still_occupied()) waited++;
    MUST(plinth_synchronize(0));
    limit(0);
    row->after();
  }
  qsort(taken, ROUNDS, sizeof taken[0], ascending);
  printf("| %-45s | %9.1f | %9.1f | %-10s |\n", row->name, taken[ROUNDS / 2], taken[ROUNDS - 1],
         waited == 0 ? "yes" : "NO");
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
  for (int index = 0; index < STREAMS; index++) MUST(plinth_stream_create(0, 0, &streams[index]));
  /* The first launch loads the kernel; the second one is timed. */
  MUST(plinth_sleep(1000, own));
  MUST(plinth_synchronize(0));
  begin = now_us();
  MUST(plinth_sleep(cycles / 10, own));
  MUST(plinth_synchronize(0));
  length = now_us() - begin;
  cycles = (uint64_t)((double)cycles / 10 * 100e3 / length);
  printf("Kernels occupy the streams for 100 ms; microseconds of a call, %d rounds.\n\n", ROUNDS);
  printf("| %-45s | %9s | %9s | kernels still run |\n|---|---|---|---|\n", "call", "median", "maximum");
  for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) waited += measure(&rows[index]);
  printf("\n%s\n", waited == 0 ? "No call waited for a kernel." : "Some calls waited for a kernel.");
  return waited != 0 || not_moved;
}
