/* Measures memory that is made for others: what the kinds of pools cost to allocate, to return to the driver and to use, and
 * what a registration and its exports cost.
 *
 * Usage: registration [--mib MIB]. MIB is the memory of each pool, in blocks of 2 MiB. Build and
 * run: `make bench`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "measure.h"

#include <stdint.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BLOCK (2 * MIB)

enum { ROUNDS = 9, MOST_BLOCKS = 4096, FILLS = 20 };

static const struct {
  const char *name;
  uint32_t flags;
} kinds[] = {
    {"as the default pool", 0},
    {"GPUDirect RDMA", PLINTH_MEM_POOL_GPU_DIRECT_RDMA},
    {"fabric", PLINTH_MEM_POOL_FABRIC},
    {"segments", PLINTH_MEM_POOL_SEGMENTS},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static void *blocks[MOST_BLOCKS];
static size_t count;

static double median(double *values) {
  qsort(values, ROUNDS, sizeof *values, ascending);
  return values[ROUNDS / 2];
}

static void allocate(plinth_pool_id_t pool) {
  MUST(plinth_begin_allocate_current_thread_to_pool(0, pool));
  for (size_t index = 0; index < count; index++) {
    MUST(plinth_caching_allocator_alloc(BLOCK, 0, NULL, &blocks[index]));
  }
  MUST(plinth_end_allocate_to_pool(0, pool));
  MUST(plinth_release_pool(0, pool));
}

/* Returns GB/s of fills of one large block. */
static double fill_rate(plinth_pool_id_t pool) {
  const size_t bytes = count * BLOCK;
  void *block = NULL;
  MUST(plinth_begin_allocate_current_thread_to_pool(0, pool));
  MUST(plinth_caching_allocator_alloc(bytes, 0, NULL, &block));
  MUST(plinth_end_allocate_to_pool(0, pool));
  MUST(plinth_release_pool(0, pool));
  MUST(plinth_memset(block, 1, bytes, NULL));
  MUST(plinth_synchronize(0));
  const double start = now_ns();
  for (int index = 0; index < FILLS; index++) {
    MUST(plinth_memset(block, (uint8_t)index, bytes, NULL));
  }
  MUST(plinth_synchronize(0));
  const double rate = (double)bytes * FILLS / (now_ns() - start);
  MUST(plinth_caching_allocator_delete(block));
  return rate;
}

static void compare_pools(void) {
  static double grow[KINDS][ROUNDS], shrink[KINDS][ROUNDS], rate[KINDS][ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    /* In turns, so that no kind profits from a warmer machine. */
    for (int kind = 0; kind < KINDS; kind++) {
      plinth_pool_id_t pool;
      MUST(plinth_mem_pool_create_with_flags(kinds[kind].flags, &pool));
      double start = now_ns();
      allocate(pool);
      grow[kind][round] = (now_ns() - start) / 1e3 / (double)count;
      for (size_t index = 0; index < count; index++) {
        MUST(plinth_caching_allocator_delete(blocks[index]));
      }
      start = now_ns();
      MUST(plinth_mem_pool_destroy(pool));
      MUST(plinth_empty_cache());
      shrink[kind][round] = (now_ns() - start) / 1e3 / (double)count;
      MUST(plinth_mem_pool_create_with_flags(kinds[kind].flags, &pool));
      rate[kind][round] = fill_rate(pool);
      MUST(plinth_mem_pool_destroy(pool));
      MUST(plinth_empty_cache());
    }
  }
  printf("%zu blocks of 2 MiB; medians of %d rounds\n", count, ROUNDS);
  printf("%-20s %18s %18s %12s\n", "pool", "allocation, us", "return, us", "fill, GB/s");
  for (int kind = 0; kind < KINDS; kind++) {
    printf("%-20s %18.1f %18.1f %12.0f\n", kinds[kind].name, median(grow[kind]), median(shrink[kind]), median(rate[kind]));
  }
}

static void measure_registration(void) {
  static double create[ROUNDS], destroy[ROUNDS], dma_buf[ROUNDS], part[ROUNDS];
  enum { REPEATS = 100 };
  const size_t bytes = count * BLOCK;
  void *block = NULL;
  MUST(plinth_caching_allocator_alloc(bytes, 0, NULL, &block));
  for (int round = 0; round < ROUNDS; round++) {
    plinth_memory_registration_t registrations[REPEATS];
    plinth_memory_part_t exported = PLINTH_MEMORY_PART_INIT;
    int32_t descriptor = -1;
    size_t offset, size;
    double start = now_ns();
    for (int index = 0; index < REPEATS; index++) {
      MUST(plinth_memory_registration_create(block, bytes, NULL, &registrations[index]));
    }
    create[round] = (now_ns() - start) / 1e3 / REPEATS;
    start = now_ns();
    MUST(plinth_memory_registration_dma_buf(registrations[0], &descriptor, &offset, &size));
    dma_buf[round] = (now_ns() - start) / 1e3;
    close(descriptor);
    start = now_ns();
    MUST(plinth_memory_registration_part(registrations[0], 0, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &exported));
    part[round] = (now_ns() - start) / 1e3;
    close(exported.descriptor);
    start = now_ns();
    for (int index = 0; index < REPEATS; index++) {
      MUST(plinth_memory_registration_destroy(registrations[index]));
    }
    destroy[round] = (now_ns() - start) / 1e3 / REPEATS;
  }
  MUST(plinth_caching_allocator_delete(block));
  printf("\n%zu MiB: registration %.2f us, its end %.2f us, export as a DMA-BUF %.1f us, of one part %.1f us\n", bytes / MIB,
         median(create), median(destroy), median(dma_buf), median(part));
}

int main(int argc, char **argv) {
  size_t mib = 512;
  for (int index = 1; index < argc; index++) {
    if (strcmp(argv[index], "--mib") == 0 && index + 1 < argc) {
      mib = strtoul(argv[++index], NULL, 10);
    } else {
      fprintf(stderr, "usage: registration [--mib MIB]\n");
      return 2;
    }
  }
  count = mib * MIB / BLOCK;
  if (count == 0 || count > MOST_BLOCKS) {
    fprintf(stderr, "--mib is 2 to %d\n", 2 * MOST_BLOCKS);
    return 2;
  }
  MUST(plinth_init());
  compare_pools();
  measure_registration();
  return 0;
}
