/* Measures what the library adds to NCCL's calls: an all-reduce through NCCL itself and through plinth, in NCCL's blocking and
 * in its non-blocking mode, where a call is complete when ncclCommGetAsyncError says so. The four take turns.
 *
 * Usage: nccl_calls [--ranks N] [--bytes B] [--rounds N]. N processes have a device each, or share the devices there are; the
 * default is 2. Prints for each case the medians and the least of the microseconds of a call, and the median to the completion
 * of its work, of rank 0. NCCL is the file that PLINTH_NCCL_LIBRARY names, or libnccl.so.2. Build and run: `make bench`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "measure.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- NCCL, as far as it is needed; its headers need not be installed */

typedef struct {
  char internal[128];
} nccl_id;

/* ncclConfig_t of NCCL 2.32, whose last value disables NVLink multicast; before 2.32 only the part before the name is used, and
 * NCCL_NVLS_ENABLE=0 does that. */
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share, traffic_class;
  const char *name;
  int others[14], multicast;
} nccl_config;

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_FLOAT = 7, NCCL_SUM = 0 };

static int (*nccl_version)(int *);
static int (*nccl_unique_id)(nccl_id *);
static int (*nccl_init)(void **, int, nccl_id, int, nccl_config *);
static int (*nccl_error)(void *, int *);
static int (*nccl_all_reduce)(const void *, void *, size_t, int, int, void *, void *);

#define NCCL(call)                                                               \
  do {                                                                           \
    const int code_ = (call);                                                    \
    if (code_ != NCCL_SUCCESS && code_ != NCCL_IN_PROGRESS) {                    \
      fprintf(stderr, "%s:%d: %s: NCCL error %d\n", __FILE__, __LINE__, #call, code_); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)

static bool load_nccl(void) {
  const char *file = getenv("PLINTH_NCCL_LIBRARY");
  void *library = dlopen(file == NULL ? "libnccl.so.2" : file, RTLD_NOW);
  if (library == NULL) {
    return false;
  }
  *(void **)&nccl_version = dlsym(library, "ncclGetVersion");
  *(void **)&nccl_unique_id = dlsym(library, "ncclGetUniqueId");
  *(void **)&nccl_init = dlsym(library, "ncclCommInitRankConfig");
  *(void **)&nccl_error = dlsym(library, "ncclCommGetAsyncError");
  *(void **)&nccl_all_reduce = dlsym(library, "ncclAllReduce");
  return nccl_version != NULL && nccl_unique_id != NULL && nccl_init != NULL && nccl_error != NULL && nccl_all_reduce != NULL;
}

/* ---- the four cases */

enum { BARE_BLOCKING, PLINTH_BLOCKING, BARE, PLINTH, CASES };
static const char *CASE_NAMES[CASES] = {"NCCL, blocking", "plinth, unlimited", "NCCL, non-blocking", "plinth"};

enum { MOST_RANKS = 16, WARM = 20, MOST_ROUNDS = 10000 };

/* What the processes share: ids that rank 0 creates. */
static struct {
  nccl_id ids[4];
  atomic_bool ready;
} *shared;

static int ranks = 2, rounds = 300;
static size_t bytes = 1024;
static void *comms[2];
static plinth_communicator_t communicators[2];
static void *from, *to;

static void wait_for_nccl(void *comm) {
  int code = NCCL_IN_PROGRESS;
  while (code == NCCL_IN_PROGRESS) {
    NCCL(nccl_error(comm, &code));
  }
  NCCL(code);
}

static nccl_config config_of(int blocking) {
  int version = 0;
  NCCL(nccl_version(&version));
  const bool whole = version >= 23200;
  nccl_config config = {.size = whole ? sizeof config : offsetof(nccl_config, name),
                        .magic = 0xcafebeef,
                        .version = whole ? 23200 : 21800,
                        .blocking = blocking,
                        .cga_cluster_size = INT_MIN,
                        .min_ctas = INT_MIN,
                        .max_ctas = INT_MIN,
                        .split_share = INT_MIN,
                        .traffic_class = INT_MIN,
                        .multicast = INT_MAX};
  for (size_t index = 0; index < sizeof config.others / sizeof *config.others; index++) {
    config.others[index] = INT_MIN;
  }
  return config;
}

static void create(int rank, int32_t device) {
  if (rank == 0) {
    for (int index = 0; index < 4; index++) {
      NCCL(nccl_unique_id(&shared->ids[index]));
    }
    atomic_store(&shared->ready, true);
  }
  while (!atomic_load(&shared->ready)) {
    usleep(1000);
  }
  for (int blocking = 0; blocking < 2; blocking++) {
    nccl_config config = config_of(blocking);
    NCCL(nccl_init(&comms[blocking], ranks, shared->ids[blocking], rank, &config));
    wait_for_nccl(comms[blocking]);
    plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
    options.engine = PLINTH_ENGINE_NCCL;
    options.flags = blocking ? PLINTH_COMMUNICATOR_UNLIMITED : 0;
    const uint8_t *id = (const uint8_t *)shared->ids[2 + blocking].internal;
    MUST(plinth_communicator_init_rank(ranks, id, rank, device, &options, &communicators[blocking]));
  }
}

static void call(int number) {
  const DLDataType floats = {2, 32, 1};
  const int blocking = number == BARE_BLOCKING || number == PLINTH_BLOCKING;
  if (number == PLINTH_BLOCKING || number == PLINTH) {
    MUST(plinth_communicator_all_reduce(communicators[blocking], from, to, bytes / 4, floats, PLINTH_REDUCE_SUM, NULL));
    return;
  }
  NCCL(nccl_all_reduce(from, to, bytes / 4, NCCL_FLOAT, NCCL_SUM, comms[blocking], NULL));
  if (!blocking) {
    wait_for_nccl(comms[blocking]);
  }
}

static int run(int rank) {
  static double called[CASES][MOST_ROUNDS], completed[CASES][MOST_ROUNDS];
  int32_t count = 0;
  MUST(plinth_device_count(&count));
  const int32_t device = rank % count;
  MUST(plinth_set_device(device));
  MUST(plinth_caching_allocator_alloc(bytes, device, NULL, &from));
  MUST(plinth_caching_allocator_alloc(bytes, device, NULL, &to));
  MUST(plinth_memset(from, 0, bytes, NULL));
  MUST(plinth_synchronize(device));
  create(rank, device);
  for (int round = -WARM; round < rounds; round++) {
    for (int number = 0; number < CASES; number++) {
      const double start = now_ns();
      call(number);
      const double returned = now_ns();
      MUST(plinth_synchronize(device));
      if (round >= 0) {
        called[number][round] = (returned - start) / 1e3;
        completed[number][round] = (now_ns() - start) / 1e3;
      }
    }
  }
  for (int number = 0; rank == 0 && number < CASES; number++) {
    qsort(called[number], (size_t)rounds, sizeof(double), ascending);
    qsort(completed[number], (size_t)rounds, sizeof(double), ascending);
    printf("%-20s %8.2f %8.2f %8.2f\n", CASE_NAMES[number], called[number][rounds / 2], called[number][0],
           completed[number][rounds / 2]);
  }
  return 0;
}

int main(int argc, char **argv) {
  int failed = 0, status = 0;
  for (int index = 1; index + 1 < argc; index += 2) {
    const int value = atoi(argv[index + 1]);
    if (strcmp(argv[index], "--ranks") == 0 && value >= 1 && value <= MOST_RANKS) {
      ranks = value;
    } else if (strcmp(argv[index], "--bytes") == 0 && value >= 4) {
      bytes = (size_t)value;
    } else if (strcmp(argv[index], "--rounds") == 0 && value >= 1 && value <= MOST_ROUNDS) {
      rounds = value;
    } else {
      fprintf(stderr, "nccl_calls: %s %s: see the first lines of nccl_calls.c\n", argv[index], argv[index + 1]);
      return 2;
    }
  }
  if (!load_nccl()) {
    fprintf(stderr, "nccl_calls: skipped: no NCCL\n");
    return 77;
  }
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  printf("all-reduce of %zu bytes, %d ranks, us: call (median, least), completion (median)\n", bytes, ranks);
  fflush(stdout);
  for (int rank = 0; rank < ranks; rank++) {
    const pid_t child = fork();
    if (child == 0) {
      exit(run(rank));
    }
    if (child < 0) {
      perror("fork");
      return 1;
    }
  }
  while (wait(&status) > 0) {
    failed |= status != 0;
  }
  return failed;
}
