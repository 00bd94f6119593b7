/* Measures memory that sleeps and wakes: the bytes that are freed, and the rates of each backup beside bare copies of the
 * same memory by the driver, or beside bare writes and reads of a file. All devices take part at the same time.
 *
 * Usage: memory_sleep [--gib GIB] [--backups NAME,...] [--folder FOLDER] [--cycles CYCLES]. GIB is the memory on each device;
 * the names are pinned, pageable, file and none; FOLDER is that of the files, by default that of temporary files; with CYCLES
 * the program only repeats sleep and wake so often, and compares every byte after each. GB are 10^9 bytes. Build and run:
 * `make bench`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "measure.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

enum { POOLS = 8, MOST_BLOCKS = 4096, MOST_DEVICES = 16, ROUNDS = 5, THREADS = 4 };

typedef unsigned long long address;

static unsigned (*host_alloc)(void **, size_t, unsigned);
static unsigned (*host_free)(void *);
static unsigned (*copy)(address, address, size_t, void *);

static plinth_pool_id_t pools[POOLS];
static char tags[POOLS][16];
static struct {
  void *memory;
  size_t bytes;
  int32_t device;
} blocks[MOST_BLOCKS];
static int block_count;
static int32_t devices;
static plinth_stream_t streams[MOST_DEVICES];
static size_t total;
static const char *folder;

/* ---- the memory */

/* Blocks of a model's sizes, the same number of bytes in each pool on each device. */
static void allocate(size_t bytes_of_device) {
  uint32_t random = 1;
  for (int pool = 0; pool < POOLS; pool++) {
    snprintf(tags[pool], sizeof tags[pool], "layer %d", pool);
    MUST(plinth_mem_pool_create(false, false, &pools[pool]));
    MUST(plinth_mem_pool_set_tag(pools[pool], tags[pool]));
    for (int32_t device = 0; device < devices; device++) {
      MUST(plinth_begin_allocate_current_thread_to_pool(device, pools[pool]));
      for (size_t left = bytes_of_device / POOLS / (2 * MIB) * 2 * MIB; left > 0;) {
        random = random * 1664525 + 1013904223;
        const size_t wanted = (1 + (random >> 16) % 64) * 2 * MIB, bytes = wanted < left ? wanted : left;
        if (block_count == MOST_BLOCKS) {
          fputs("too many blocks\n", stderr);
          exit(1);
        }
        MUST(plinth_caching_allocator_alloc(bytes, device, NULL, &blocks[block_count].memory));
        blocks[block_count].bytes = bytes;
        blocks[block_count++].device = device;
        left -= bytes;
        total += bytes;
      }
      MUST(plinth_end_allocate_to_pool(device, pools[pool]));
      MUST(plinth_release_pool(device, pools[pool]));
    }
  }
}

static void wait_for_all(void) {
  for (int32_t device = 0; device < devices; device++) {
    MUST(plinth_synchronize(device));
  }
}

/* Each block has other words in each round. */
static void fill(uint32_t round) {
  for (int index = 0; index < block_count; index++) {
    const uint32_t word = (round * MOST_BLOCKS + (uint32_t)index) * 2654435761u;
    const plinth_stream_t stream = streams[blocks[index].device];
    MUST(plinth_memset_pattern(blocks[index].memory, &word, sizeof word, blocks[index].bytes, stream));
  }
  wait_for_all();
}

static void expect_words(uint32_t round) {
  static unsigned char *host;
  enum { PART = 64 << 20 };
  if (host == NULL) {
    MUST(plinth_host_alloc(PART, (void **)&host));
  }
  for (int index = 0; index < block_count; index++) {
    const uint32_t word = (round * MOST_BLOCKS + (uint32_t)index) * 2654435761u;
    for (size_t from = 0; from < blocks[index].bytes; from += PART) {
      const size_t left = blocks[index].bytes - from, bytes = left < PART ? left : PART;
      const plinth_stream_t stream = streams[blocks[index].device];
      MUST(plinth_memcpy(host, (unsigned char *)blocks[index].memory + from, bytes, stream));
      MUST(plinth_stream_synchronize(stream));
      if (memcmp(host, &word, sizeof word) != 0 || memcmp(host, host + sizeof word, bytes - sizeof word) != 0) {
        fprintf(stderr, "block %d has changed in round %u\n", index, round);
        exit(1);
      }
    }
  }
}

/* ---- bare copies, writes and reads */

/* A thread for each device copies as many bytes as sleep does, block by block, in GiB of host memory. */
static struct {
  void *host[MOST_DEVICES];
  bool to_host;
} bare;

static void *copy_blocks(void *argument) {
  const int32_t device = *(const int32_t *)argument;
  MUST(plinth_set_device(device));
  size_t at = 0;
  for (int index = 0; index < block_count; index++) {
    if (blocks[index].device == device) {
      const size_t bytes = blocks[index].bytes;
      const address memory = (address)(uintptr_t)blocks[index].memory;
      at = at + bytes > GIB ? 0 : at;
      const address host = (address)(uintptr_t)bare.host[device] + at;
      DRIVER(copy(bare.to_host ? host : memory, bare.to_host ? memory : host, bytes, streams[device]));
      at += bytes;
    }
  }
  MUST(plinth_stream_synchronize(streams[device]));
  return NULL;
}

static double copy_rate(bool to_host) {
  double rates[ROUNDS];
  bare.to_host = to_host;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[MOST_DEVICES];
    int32_t numbers[MOST_DEVICES];
    const double begin = now_ns();
    for (int32_t device = 0; device < devices; device++) {
      numbers[device] = device;
      pthread_create(&threads[device], NULL, copy_blocks, &numbers[device]);
    }
    for (int32_t device = 0; device < devices; device++) {
      pthread_join(threads[device], NULL);
    }
    rates[round] = (double)total / (now_ns() - begin);
  }
  qsort(rates, ROUNDS, sizeof *rates, ascending);
  return rates[ROUNDS / 2];
}

typedef struct rates {
  double out, in;
} rates;

static rates bare_copies(bool pinned) {
  for (int32_t device = 0; device < devices; device++) {
    MUST(plinth_set_device(device));
    if (pinned) {
      DRIVER(host_alloc(&bare.host[device], GIB, 1));
    } else {
      bare.host[device] = malloc(GIB);
    }
    memset(bare.host[device], 1, GIB);
  }
  const rates found = {copy_rate(true), copy_rate(false)};
  for (int32_t device = 0; device < devices; device++) {
    if (pinned) {
      DRIVER(host_free(bare.host[device]));
    } else {
      free(bare.host[device]);
    }
  }
  MUST(plinth_set_device(0));
  fill(0);
  return found;
}

static struct {
  int file;
  bool writes;
  size_t part;
} io;

static void *write_or_read(void *argument) {
  enum { BUFFER = 8 << 20 };
  const size_t first = (size_t)*(const int *)argument * io.part;
  unsigned char *buffer = aligned_alloc(4096, BUFFER);
  memset(buffer, 7, BUFFER);
  for (size_t done = 0; done < io.part; done += BUFFER) {
    const off_t at = (off_t)(first + done);
    const ssize_t moved = io.writes ? pwrite(io.file, buffer, BUFFER, at) : pread(io.file, buffer, BUFFER, at);
    if (moved != BUFFER) {
      perror("a bare file");
      exit(1);
    }
  }
  free(buffer);
  return NULL;
}

static double file_rate(bool writes) {
  pthread_t threads[THREADS];
  int numbers[THREADS];
  io.writes = writes;
  const double begin = now_ns();
  for (int index = 0; index < THREADS; index++) {
    numbers[index] = index;
    pthread_create(&threads[index], NULL, write_or_read, &numbers[index]);
  }
  for (int index = 0; index < THREADS; index++) {
    pthread_join(threads[index], NULL);
  }
  return (double)(io.part * THREADS) / (now_ns() - begin);
}

/* As many bytes in a file whose blocks exist, by four threads. */
static rates bare_file(void) {
  io.part = total / THREADS & ~(8 * MIB - 1);
  io.file = open(folder, O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (io.file < 0) {
    io.file = open(folder, O_TMPFILE | O_RDWR, 0600);
  }
  if (io.file < 0 || posix_fallocate(io.file, 0, (off_t)(io.part * THREADS)) != 0) {
    perror(folder);
    exit(1);
  }
  const double written = file_rate(true);
  const rates found = {written, file_rate(false)};
  close(io.file);
  return found;
}

/* ---- sleep and wake */

static size_t free_memory(void) {
  size_t sum = 0, free_bytes, all;
  for (int32_t device = 0; device < devices; device++) {
    MUST(plinth_mem_get_info(device, &free_bytes, &all));
    sum += free_bytes;
  }
  return sum;
}

static void print_rate(size_t bytes, double ns, double bare_rate) {
  const double rate = (double)bytes / ns;
  printf(" %.1f | %.1f |", ns / 1e6, rate);
  if (bare_rate > 0) {
    printf(" %.1f | %.2f |", bare_rate, rate / bare_rate);
  } else {
    printf(" | |");
  }
}

static void measure(const char *name, plinth_backup_t backup, bool reserved, rates beside) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = backup;
  options.folder = backup == PLINTH_BACKUP_FILE ? folder : NULL;
  double slept[ROUNDS], woken[ROUNDS];
  size_t held = 0, freed = 0;
  if (reserved) {
    MUST(plinth_memory_alloc_backup(NULL, &options));
  }
  for (uint32_t round = 0; round < ROUNDS; round++) {
    fill(round);
    plinth_sleep_info_t info = PLINTH_SLEEP_INFO_INIT;
    MUST(plinth_memory_sleep_info(NULL, &info));
    const size_t before = free_memory();
    double begin = now_ns();
    MUST(plinth_memory_sleep(NULL, &options));
    slept[round] = now_ns() - begin;
    held = info.mapped_bytes;
    freed = free_memory() - before;
    begin = now_ns();
    MUST(plinth_memory_wake(NULL));
    woken[round] = now_ns() - begin;
    if (backup != PLINTH_BACKUP_NONE) {
      expect_words(round);
    }
  }
  if (reserved) {
    MUST(plinth_memory_free_backup(NULL));
  }
  MUST(plinth_host_empty_cache());
  qsort(slept, ROUNDS, sizeof *slept, ascending);
  qsort(woken, ROUNDS, sizeof *woken, ascending);
  printf("| %s | %.2f |", name, 100.0 * (double)freed / (double)held);
  print_rate(total, slept[ROUNDS / 2], beside.out);
  print_rate(total, woken[ROUNDS / 2], beside.in);
  putchar('\n');
  fflush(stdout);
}

/* When the first and the last of the pools can be used after an asynchronous wake. */
static void measure_streaming(void) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = PLINTH_BACKUP_PINNED;
  MUST(plinth_memory_alloc_backup(NULL, &options));
  double returned[ROUNDS], first[ROUNDS], last[ROUNDS];
  for (uint32_t round = 0; round < ROUNDS; round++) {
    fill(round);
    MUST(plinth_memory_sleep(NULL, &options));
    const double begin = now_ns();
    double at[POOLS];
    MUST(plinth_memory_wake_async(NULL));
    returned[round] = now_ns() - begin;
    for (int pool = 0; pool < POOLS; pool++) {
      for (int32_t device = 0; device < devices; device++) {
        MUST(plinth_memory_wake_wait(tags[pool], streams[device]));
        MUST(plinth_stream_synchronize(streams[device]));
      }
      at[pool] = now_ns() - begin;
    }
    first[round] = at[0];
    last[round] = at[POOLS - 1];
    expect_words(round);
  }
  MUST(plinth_memory_free_backup(NULL));
  qsort(returned, ROUNDS, sizeof *returned, ascending);
  qsort(first, ROUNDS, sizeof *first, ascending);
  qsort(last, ROUNDS, sizeof *last, ascending);
  printf("\nplinth_memory_wake_async returns after %.1f ms; the first of %d pools can be used after %.1f ms, the last after "
         "%.1f ms.\n", returned[ROUNDS / 2] / 1e6, POOLS, first[ROUNDS / 2] / 1e6, last[ROUNDS / 2] / 1e6);
}

static void repeat(int cycles) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  options.backup = PLINTH_BACKUP_PINNED;
  MUST(plinth_memory_alloc_backup(NULL, &options));
  for (int round = 0; round < cycles; round++) {
    fill((uint32_t)round);
    MUST(plinth_memory_sleep(NULL, &options));
    MUST(plinth_memory_wake(NULL));
    expect_words((uint32_t)round);
  }
  printf("%d cycles of %.1f GiB: no bit has changed\n", cycles, (double)total / (double)GIB);
}

int main(int count, char **arguments) {
  double gib = 0;
  int cycles = 0;
  const char *backups = "pinned,pageable,file,none";
  folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
  for (int index = 1; index + 1 < count; index += 2) {
    if (strcmp(arguments[index], "--backups") == 0) {
      backups = arguments[index + 1];
    } else if (strcmp(arguments[index], "--gib") == 0) {
      gib = atof(arguments[index + 1]);
    } else if (strcmp(arguments[index], "--folder") == 0) {
      folder = arguments[index + 1];
    } else if (strcmp(arguments[index], "--cycles") == 0) {
      cycles = atoi(arguments[index + 1]);
    }
  }
  int32_t kind = 0;
  MUST(plinth_get_device_kind(&kind));
  const bool on_gpu = kind == PLINTH_DEVICE_CUDA;
  MUST(plinth_device_count(&devices));
  devices = !on_gpu ? 1 : devices < MOST_DEVICES ? devices : MOST_DEVICES;
  ENTRY(host_alloc, "cuMemHostAlloc");
  ENTRY(host_free, "cuMemFreeHost");
  ENTRY(copy, "cuMemcpyAsync");
  for (int32_t device = 0; device < devices; device++) {
    MUST(plinth_stream_create(device, 0, &streams[device]));
  }
  allocate((size_t)((gib > 0 ? gib : on_gpu ? 16 : 0.25) * (double)GIB));
  if (cycles > 0) {
    repeat(cycles);
    return 0;
  }
  printf("## Sleep and wake: %.1f GiB on each of %d devices\n\n", (double)total / devices / (double)GIB, devices);
  puts("| backup | freed, % | sleep, ms | GB/s | bare GB/s | ratio | wake, ms | GB/s | bare GB/s | ratio |");
  puts("|---|---|---|---|---|---|---|---|---|---|");
  if (strstr(backups, "pinned") != NULL) {
    const rates pinned = bare_copies(true);
    measure("pinned, allocated before", PLINTH_BACKUP_PINNED, true, pinned);
    measure("pinned", PLINTH_BACKUP_PINNED, false, pinned);
  }
  if (strstr(backups, "pageable") != NULL) {
    const rates pageable = bare_copies(false);
    measure("pageable, allocated before", PLINTH_BACKUP_PAGEABLE, true, pageable);
    measure("pageable", PLINTH_BACKUP_PAGEABLE, false, pageable);
  }
  if (strstr(backups, "file") != NULL) {
    measure("file, allocated before", PLINTH_BACKUP_FILE, true, bare_file());
  }
  if (strstr(backups, "none") != NULL) {
    const rates nothing = {0, 0};
    measure("none", PLINTH_BACKUP_NONE, false, nothing);
  }
  if (strstr(backups, "pinned") != NULL) {
    measure_streaming();
  }
  return 0;
}
