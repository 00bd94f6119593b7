/* Measures how closely processes can share a device. In turns each process needs more memory; without plinth/memory_share.h
 * the memory that one of them has cached would be missing in the next. Each process allocates blocks of random sizes, keeps
 * them for random times, fills their beginnings, and never waits for its stream. The demand of one falls while that of the next
 * rises, and the sum of what is live is at most the device's free memory divided by --ratio.
 *
 * Usage: memory_share [--processes N] [--ratio R] [--turns N] [--seconds S] [--seed N] [--csv FILE]. A turn is the peak of one
 * process and lasts S seconds. Writes a line for each process, and to FILE the live and held bytes every 10 ms, for
 * memory_share_chart.py. On the host device set PLINTH_HOST_MEMORY and PLINTH_HOST_MEMORY_NAME, so that the processes share
 * one memory. The exit status is 1 if a process ran out of memory. Build: `make bench`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "measure.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum { MOST_PROCESSES = 16, MOST_BLOCKS = 4096 };

/* The smallest block is the free memory divided by this; the largest ones have 240 times its size. */
enum { SMALLEST = 8192 };

/* What is filled of a block. */
#define FILL (MIB / 4)

/* The part of each process that it never gives up, of the peak of one process. */
static const double BASE = 0.1;

/* What the processes tell each other. */
static struct {
  atomic_int ready;
  atomic_int ended;
  atomic_size_t room;
  atomic_size_t live[MOST_PROCESSES];
  atomic_size_t held[MOST_PROCESSES];
} *shared;

static struct {
  int processes, turns;
  double ratio, seconds;
  uint64_t seed;
  const char *csv;
} options = {3, 6, 1.05, 1.0, 1, NULL};

static uint64_t random_next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static double seconds_since(double start_ns) { return (now_ns() - start_ns) / 1e9; }

/* ---- the demand */

/* The part of its peak that a process needs: all of it in the middle of its turns, where the others need BASE. */
static double demand(int process, double time) {
  const double turn = time / options.seconds;
  const int number = (int)turn;
  const double inside = turn - number, rise = 0.2;
  if (number % options.processes != process || number >= options.turns) {
    return BASE;
  }
  const double slope = inside < rise ? inside / rise : inside > 1 - rise ? (1 - inside) / rise : 1;
  return BASE + (1 - BASE) * slope;
}

/* ---- one process */

static struct {
  void *memory;
  size_t bytes;
} blocks[MOST_BLOCKS];
static int count;
static size_t live;

static size_t held(void) {
  size_t bytes = 0;
  MUST(plinth_memory_reserved(0, &bytes));
  return bytes;
}

/* Allocates and fills a block. Returns whether there was memory. */
static bool add(size_t most, uint64_t *seed, double *longest_ns) {
  const size_t unit = atomic_load(&shared->room) / SMALLEST / 512 * 512;
  const size_t wanted = (unit << random_next(seed) % 8) * (16 + random_next(seed) % 16) / 16;
  const size_t bytes = wanted < most ? wanted : most;
  if (count == MOST_BLOCKS) {
    return true;
  }
  const double start = now_ns();
  const plinth_status_t status = plinth_caching_allocator_alloc(bytes, 0, NULL, &blocks[count].memory);
  const double time = now_ns() - start;
  *longest_ns = time > *longest_ns ? time : *longest_ns;
  if (status == PLINTH_ERROR_OUT_OF_MEMORY) {
    fprintf(stderr, "%s\n", plinth_last_error());
    return false;
  }
  MUST(status);
  MUST(plinth_memset(blocks[count].memory, (unsigned char)count, bytes < FILL ? bytes : FILL, NULL));
  blocks[count++].bytes = bytes;
  live += bytes;
  return true;
}

static void drop(uint64_t *seed) {
  const int index = (int)(random_next(seed) % (uint64_t)count);
  MUST(plinth_caching_allocator_delete(blocks[index].memory));
  live -= blocks[index].bytes;
  blocks[index] = blocks[--count];
}

static int run_process(int process) {
  uint64_t seed = options.seed * 1000 + (uint64_t)process;
  size_t free_bytes = 0, total = 0;
  double longest_ns = 0;
  plinth_memory_share_options_t share = PLINTH_MEMORY_SHARE_OPTIONS_INIT;
  MUST(plinth_memory_share_enable(0, &share));
  /* The driver allocates for itself when a process first fills memory. */
  MUST(plinth_caching_allocator_alloc(MIB, 0, NULL, &blocks[0].memory));
  MUST(plinth_memset(blocks[0].memory, 0, MIB, NULL));
  MUST(plinth_synchronize(0));
  MUST(plinth_caching_allocator_delete(blocks[0].memory));
  MUST(plinth_empty_cache());
  for (atomic_fetch_add(&shared->ready, 1); atomic_load(&shared->ready) < options.processes;) {
    usleep(1000);
  }
  if (process == 0) {
    MUST(plinth_mem_get_info(0, &free_bytes, &total));
    atomic_store(&shared->room, free_bytes);
  }
  while (atomic_load(&shared->room) == 0) {
    usleep(1000);
  }
  /* At a peak the others hold BASE of theirs. */
  const size_t sum = (size_t)((double)atomic_load(&shared->room) / options.ratio);
  const size_t peak = (size_t)((double)sum / (1 + (options.processes - 1) * BASE));
  const double start = now_ns(), end = options.turns * options.seconds;
  unsigned long long calls = 0;
  bool short_of_memory = false;
  for (double time = 0; time < end && !short_of_memory; time = seconds_since(start)) {
    const size_t wanted = (size_t)((double)peak * demand(process, time));
    while (live > wanted) {
      drop(&seed);
      calls++;
    }
    /* What falls is published before it is missed elsewhere, so the sum of what is live stays below its limit. */
    atomic_store(&shared->live[process], live);
    size_t others = 0;
    for (int other = 0; other < options.processes; other++) {
      others += other == process ? 0 : atomic_load(&shared->live[other]);
    }
    const size_t room = sum > others ? sum - others : 0, most = wanted < room ? wanted : room;
    for (int step = 0; step < 8 && live + 512 <= most && !short_of_memory; step++, calls++) {
      short_of_memory = !add((most - live) / 512 * 512, &seed, &longest_ns);
    }
    if (count > 1) {
      drop(&seed);
      calls++;
    }
    atomic_store(&shared->live[process], live);
    atomic_store(&shared->held[process], held());
    usleep(200);
  }
  plinth_memory_share_info_t info = PLINTH_MEMORY_SHARE_INFO_INIT;
  MUST(plinth_memory_share_info(0, &info));
  printf("process %d: %s, %llu calls, longest %.1f ms; asked %llu times, answered %llu, gave back %.2f GiB\n", process,
         short_of_memory ? "OUT OF MEMORY" : "complete", calls, longest_ns / 1e6, (unsigned long long)info.asked,
         (unsigned long long)info.answered, (double)info.given / (1 << 30));
  fflush(stdout);
  atomic_fetch_add(&shared->ended, 1);
  return short_of_memory;
}

/* ---- all processes */

/* Writes samples until all processes have ended. Returns the largest sum of live bytes. */
static size_t observe(void) {
  FILE *file = options.csv == NULL ? NULL : fopen(options.csv, "w");
  size_t most = 0;
  const double start = now_ns();
  while (atomic_load(&shared->room) == 0 && seconds_since(start) < 100) {
    usleep(1000);
  }
  while (atomic_load(&shared->ended) < options.processes && seconds_since(start) < 100 + 2 * options.turns * options.seconds) {
    size_t sum = 0;
    if (file != NULL) {
      fprintf(file, "%.0f,%zu", seconds_since(start) * 1e3, atomic_load(&shared->room));
    }
    for (int process = 0; process < options.processes; process++) {
      const size_t now = atomic_load(&shared->live[process]);
      sum += now;
      if (file != NULL) {
        fprintf(file, ",%zu,%zu", now, atomic_load(&shared->held[process]));
      }
    }
    if (file != NULL) {
      fputc('\n', file);
    }
    most = sum > most ? sum : most;
    usleep(10000);
  }
  if (file != NULL) {
    fclose(file);
  }
  return most;
}

static void read_options(int argc, char **argv) {
  for (int index = 1; index + 1 < argc; index += 2) {
    const char *name = argv[index], *value = argv[index + 1];
    if (strcmp(name, "--processes") == 0 && atoi(value) >= 1 && atoi(value) <= MOST_PROCESSES) {
      options.processes = atoi(value);
    } else if (strcmp(name, "--ratio") == 0) {
      options.ratio = atof(value);
    } else if (strcmp(name, "--turns") == 0) {
      options.turns = atoi(value);
    } else if (strcmp(name, "--seconds") == 0) {
      options.seconds = atof(value);
    } else if (strcmp(name, "--seed") == 0) {
      options.seed = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--csv") == 0) {
      options.csv = value;
    } else {
      fprintf(stderr, "memory_share: %s %s: see the first lines of memory_share.c\n", name, value);
      exit(2);
    }
  }
}

int main(int argc, char **argv) {
  int failed = 0, status = 0;
  read_options(argc, argv);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  /* No process uses plinth before it is forked. */
  for (int process = 0; process < options.processes; process++) {
    const pid_t child = fork();
    if (child == 0) {
      exit(run_process(process));
    }
    if (child < 0) {
      perror("fork");
      return 1;
    }
  }
  const size_t most = observe();
  while (wait(&status) > 0) {
    failed |= status != 0;
  }
  const double room = (double)atomic_load(&shared->room);
  printf("%.3f GiB were free; at most %.3f GiB were live at once: a ratio of %.3f\n", room / (1 << 30),
         (double)most / (1 << 30), room / (double)most);
  return failed;
}
