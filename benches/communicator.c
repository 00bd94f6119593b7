// Measures collectives over ranks, with each available engine: the time from a call to the completion of its work.
// SPDX-License-Identifier: MIT OR Apache-2.0
//
//     benches/communicator [--processes RANKS] [--largest BYTES | --sizes BYTES,...] [--registered] [--in-place] [--graph]
//                         [--only OPERATION] [--engine shared|nccl] [--unlimited]
//
// The ranks are the devices of this process, or RANKS processes with a device each. Prints one line for each case:
// operation, engine, bytes of a rank, median and minimum of the microseconds to completion at rank 0, median of the
// microseconds of the call. --registered registers the buffers of processes, with NCCL as windows; --in-place has one
// buffer for input and output of an all_reduce. With --graph the calls are captured, GRAPH_CALLS in a graph, and both medians
// are those of a replay, divided by GRAPH_CALLS. --only measures one operation; "memset" sets the bytes of one rank, so it is
// what a launch costs without a collective. --engine measures processes with one engine; --unlimited is for NCCL's blocking
// mode, which has the shortest calls. PLINTH_GROUP_TUNING and PLINTH_COMM_CONF apply to all processes, so thresholds are found
// by comparing two runs.

#include "measure.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 16, ROUNDS = 100, ROUNDS_OF_LARGE = 20, WARM = 10, GRAPH_CALLS = 20, MOST_SIZES = 40 };
static const size_t LARGE = (size_t)16 << 20;
static const char *ENGINES[] = {"auto", "NCCL", "local", "shared"};
static const char *OPERATIONS[] = {"all_reduce", "broadcast",  "all_gather", "reduce_scatter",
                                   "reduce",     "all_to_all", "send_recv",  "memset"};
enum { OPERATION_COUNT = sizeof OPERATIONS / sizeof *OPERATIONS, MEMSET = OPERATION_COUNT - 1 };

// The ranks of this process.
static int32_t ranks_here, ranks;
static int32_t devices[MOST_RANKS];
static plinth_communicator_t communicators[MOST_RANKS];
static void *from[MOST_RANKS], *to[MOST_RANKS];
static int is_registered, is_in_place, uses_graph, is_unlimited;
static size_t sizes[MOST_SIZES], largest;
static int size_count;
static const char *only;

static void finish(void) {
  for (int32_t rank = 0; rank < ranks_here; ++rank) MUST(plinth_synchronize(devices[rank]));
}

static void call(int operation, size_t bytes) {
  const DLDataType floats = {2, 32, 1};
  const size_t count = bytes / 4;
  const int grouped = ranks_here > 1 || operation == 6;
  if (grouped) MUST(plinth_communicator_group_start());
  for (int32_t rank = 0; rank < ranks_here; ++rank) {
    const plinth_communicator_t with = communicators[rank];
    plinth_stream_t stream = NULL;
    MUST(plinth_current_stream(devices[rank], &stream));
    if (operation == 0) {
      void *output = is_in_place ? from[rank] : to[rank];
      MUST(plinth_communicator_all_reduce(with, from[rank], output, count, floats, PLINTH_REDUCE_SUM, stream));
    } else if (operation == 1) {
      MUST(plinth_communicator_broadcast(with, from[rank], to[rank], count, floats, 0, stream));
    } else if (operation == 3) {
      // `bytes` is the size of the whole input; each rank gets its part.
      MUST(plinth_communicator_reduce_scatter(with, from[rank], to[rank], count / (size_t)ranks, floats, PLINTH_REDUCE_SUM,
                                              stream));
    } else if (operation == 4) {
      MUST(plinth_communicator_reduce(with, from[rank], to[rank], count, floats, PLINTH_REDUCE_SUM, 0, stream));
    } else if (operation == 5) {
      // `bytes` is the size of the whole input, with a row for each rank.
      MUST(plinth_communicator_all_to_all(with, from[rank], to[rank], count / (size_t)ranks, floats, stream));
    } else if (operation == 6) {
      // Each rank sends to the next one.
      int32_t own = 0;
      MUST(plinth_communicator_rank(with, &own));
      MUST(plinth_communicator_send(with, from[rank], count, floats, (own + 1) % ranks, stream));
      MUST(plinth_communicator_recv(with, to[rank], count, floats, (own + ranks - 1) % ranks, stream));
    } else if (operation == MEMSET) {
      MUST(plinth_memset(to[rank], 0, bytes, stream));
    } else {
      // `bytes` is the size of the whole output; each rank contributes its part.
      MUST(plinth_communicator_all_gather(with, from[rank], to[rank], count / (size_t)ranks, floats, stream));
    }
  }
  if (grouped) MUST(plinth_communicator_group_end());
}

// Captures the calls in a stream of the rank's device, which becomes the current one.
static plinth_graph_t capture(int operation, size_t bytes) {
  plinth_graph_t graph = NULL;
  MUST(plinth_graph_create(&graph));
  MUST(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  for (int index = 0; index < GRAPH_CALLS; ++index) call(operation, bytes);
  MUST(plinth_graph_capture_end(graph));
  return graph;
}

static void measure(int operation, uint32_t engine, size_t bytes, int print) {
  const int rounds = bytes >= LARGE ? ROUNDS_OF_LARGE : ROUNDS;
  const double calls = uses_graph ? GRAPH_CALLS : 1;
  plinth_graph_t graph = uses_graph ? capture(operation, bytes) : NULL;
  double whole[ROUNDS], issued[ROUNDS];
  for (int round = -WARM; round < rounds; ++round) {
    finish();
    const double begin = now_ns();
    if (uses_graph) {
      MUST(plinth_graph_replay(graph));
    } else {
      call(operation, bytes);
    }
    const double returned = now_ns();
    finish();
    if (round < 0) continue;
    whole[round] = (now_ns() - begin) / 1e3 / calls;
    issued[round] = (returned - begin) / 1e3 / calls;
  }
  MUST(plinth_graph_destroy(graph));
  if (!print) return;
  qsort(whole, (size_t)rounds, sizeof *whole, ascending);
  qsort(issued, (size_t)rounds, sizeof *issued, ascending);
  printf("%s %s %zu %.2f %.2f %.2f\n", OPERATIONS[operation], ENGINES[engine], bytes, whole[rounds / 2], whole[0],
         issued[rounds / 2]);
  fflush(stdout);
}

// Allocates memory of a rank. What NCCL registers is one physical allocation, as a window must be.
static void *buffer(int32_t device, uint32_t engine) {
  void *made = NULL;
  plinth_pool_id_t pool;
  const int is_window = is_registered && engine == PLINTH_ENGINE_NCCL;
  if (is_window) {
    MUST(plinth_mem_pool_create_with_flags(PLINTH_MEM_POOL_NCCL_WINDOW, &pool));
    MUST(plinth_begin_allocate_current_thread_to_pool(device, pool));
  }
  MUST(plinth_caching_allocator_alloc(largest, device, NULL, &made));
  if (is_window) MUST(plinth_end_allocate_to_pool(device, pool));
  return made;
}

static void measure_all(uint32_t engine, int print) {
  for (int32_t rank = 0; rank < ranks_here; ++rank) {
    from[rank] = buffer(devices[rank], engine);
    to[rank] = buffer(devices[rank], engine);
    MUST(plinth_set_device(devices[rank]));
    MUST(plinth_memset(from[rank], 0, largest, NULL));
    if (is_registered) {
      MUST(plinth_communicator_register(communicators[rank], from[rank], largest));
      MUST(plinth_communicator_register(communicators[rank], to[rank], largest));
    }
    if (uses_graph) {
      plinth_stream_t stream = NULL;
      MUST(plinth_stream_create(devices[rank], 0, &stream));
      MUST(plinth_set_stream(stream));
    }
  }
  for (int operation = 0; operation < OPERATION_COUNT; ++operation) {
    if (only == NULL ? operation == MEMSET : strcmp(only, OPERATIONS[operation]) != 0) continue;
    for (int index = 0; index < size_count; ++index) measure(operation, engine, sizes[index], print);
  }
  for (int32_t rank = 0; rank < ranks_here; ++rank) {
    MUST(plinth_caching_allocator_delete(from[rank]));
    MUST(plinth_caching_allocator_delete(to[rank]));
    MUST(plinth_communicator_destroy(communicators[rank]));
  }
}

static plinth_communicator_options_t options_of(uint32_t engine) {
  plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  options.engine = engine;
  options.timeout_milliseconds = 60000;
  options.flags = is_unlimited ? PLINTH_COMMUNICATOR_UNLIMITED : 0;
  return options;
}

static int has_nccl(void) {
  int32_t version = 0;
  return plinth_nccl_version(&version, NULL, NULL) == PLINTH_OK;
}

static int in_one_process(void) {
  MUST(plinth_device_count(&ranks));
  if (ranks < 2 || ranks > MOST_RANKS) {
    fprintf(stderr, "needs two devices, and no more than %d\n", MOST_RANKS);
    return 77;
  }
  ranks_here = ranks;
  for (int32_t rank = 0; rank < ranks; ++rank) devices[rank] = rank;
  printf("# %d devices of one process\n", ranks);
  const uint32_t engines[] = {PLINTH_ENGINE_LOCAL, PLINTH_ENGINE_NCCL};
  for (int index = 0; index < 1 + has_nccl(); ++index) {
    const plinth_communicator_options_t options = options_of(engines[index]);
    MUST(plinth_communicator_init_all(devices, (size_t)ranks, &options, communicators));
    measure_all(engines[index], 1);
  }
  return 0;
}

static int one_rank(int32_t rank, const char *folder, uint32_t engine) {
  if (engine == PLINTH_ENGINE_NCCL && !has_nccl()) return 0;
  int32_t count = 0;
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_store_t store = NULL;
  MUST(plinth_device_count(&count));
  ranks_here = 1;
  devices[0] = rank % (count > 0 ? count : 1);
  MUST(plinth_set_device(devices[0]));
  MUST(plinth_store_create(folder, &store));
  const plinth_communicator_options_t options = options_of(engine);
  MUST(plinth_store_unique_id(store, "all ranks", rank, ranks, 60000, id));
  MUST(plinth_communicator_init_rank(ranks, id, rank, devices[0], &options, communicators));
  measure_all(engine, rank == 0);
  MUST(plinth_store_destroy(store));
  return 0;
}

// Starts the ranks before anything is initialized, and waits for them. If a rank fails, the others are killed.
static int in_processes(uint32_t engine) {
  char folder[] = "/tmp/plinth-communicator-XXXXXX", command[64];
  pid_t children[MOST_RANKS];
  int failed = 0;
  if (mkdtemp(folder) == NULL) {
    perror("mkdtemp");
    return 1;
  }
  // A unique id belongs to an engine; plinth_store_unique_id selects the engine by this variable.
  setenv("PLINTH_COMMUNICATOR_ENGINE", engine == PLINTH_ENGINE_NCCL ? "nccl" : "shared", 1);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) exit(one_rank(rank, folder, engine));
  }
  for (int32_t left = ranks; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      if (children[rank] == ended) children[rank] = 0;
    }
    if (status == 0 || failed) continue;
    failed = 1;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      if (children[rank] > 0) kill(children[rank], SIGKILL);
    }
  }
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) != 0 || failed;
}

// Reads the sizes of a list; none of a list that is wrong.
static void read_sizes(const char *text) {
  size_count = 0;
  for (char *end = NULL; *text != 0; text = end + (*end == ',')) {
    const size_t bytes = strtoull(text, &end, 10);
    if (end == text || (*end != 0 && *end != ',') || size_count == MOST_SIZES) {
      size_count = 0;
      return;
    }
    sizes[size_count++] = bytes;
  }
}

int main(int argc, char **argv) {
  const char *engine = "";
  for (size_t bytes = 1024; bytes <= (size_t)256 << 20; bytes *= 4) sizes[size_count++] = bytes;
  for (int index = 1; index < argc; ++index) {
    if (strcmp(argv[index], "--processes") == 0 && index + 1 < argc) {
      ranks = atoi(argv[++index]);
    } else if (strcmp(argv[index], "--largest") == 0 && index + 1 < argc) {
      const size_t most = strtoull(argv[++index], NULL, 10);
      while (size_count > 0 && sizes[size_count - 1] > most) --size_count;
    } else if (strcmp(argv[index], "--sizes") == 0 && index + 1 < argc) {
      read_sizes(argv[++index]);
    } else if (strcmp(argv[index], "--registered") == 0) {
      is_registered = 1;
    } else if (strcmp(argv[index], "--in-place") == 0) {
      is_in_place = 1;
    } else if (strcmp(argv[index], "--graph") == 0) {
      uses_graph = 1;
    } else if (strcmp(argv[index], "--unlimited") == 0) {
      is_unlimited = 1;
    } else if (strcmp(argv[index], "--only") == 0 && index + 1 < argc) {
      only = argv[++index];
    } else if (strcmp(argv[index], "--engine") == 0 && index + 1 < argc) {
      engine = argv[++index];
    } else {
      fprintf(stderr,
              "usage: %s [--processes RANKS] [--largest BYTES | --sizes BYTES,...] [--registered] [--in-place] [--graph]"
              " [--only OPERATION] [--engine shared|nccl] [--unlimited]\n",
              argv[0]);
      return 2;
    }
  }
  for (int index = 0; index < size_count; ++index) largest = sizes[index] > largest ? sizes[index] : largest;
  const int known = *engine == 0 || strcmp(engine, "shared") == 0 || strcmp(engine, "nccl") == 0;
  if (ranks < 0 || ranks > MOST_RANKS || largest == 0 || !known) {
    fprintf(stderr, "invalid arguments: RANKS must be 1 to %d, BYTES at most %d sizes, and the engine shared or nccl\n", MOST_RANKS, MOST_SIZES);
    return 2;
  }
  if (ranks == 0 && (is_registered || uses_graph || *engine != 0)) {
    fprintf(stderr, "--registered, --graph and --engine need --processes\n");
    return 2;
  }
  if (ranks == 0) return in_one_process();
  printf("# %d processes\n", ranks);
  fflush(stdout);
  int failed = 0;
  if (strcmp(engine, "nccl") != 0) failed = in_processes(PLINTH_ENGINE_SHARED);
  return failed || strcmp(engine, "shared") == 0 ? failed : in_processes(PLINTH_ENGINE_NCCL);
}
