/*
 * Processes exchange blocks of memory and are killed at random times. The blocks that a killed process held, and those in
 * messages to it, must become free, and no other memory may change.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* timeout: 300 */
/* alone: all; kills processes */
/* long: all */
/* last: no_memory_leaks_when_processes_are_killed */
#include "driver.h"
#include "peering.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>

enum {
  WORKERS = 4,
  /* The number of transfers in total. */
  BLOCKS = 10000,
  /* The number of transfers before the first kill of a round, and between kills. */
  TRANSFERS_BEFORE_KILL = 300,
  TRANSFERS_BETWEEN_KILLS = 100,
  MAX_HELD = 24,
  /* The file descriptors of a worker: the control socket, the sockets to other workers, the counter. */
  CONTROL = SOCKET,
  FIRST_PEER = 91,
  COUNTER = 95,
};

/* The number of blocks that all workers have received. It is in shared memory, because workers are killed. */
typedef struct counter {
  uint64_t received;
} counter;

static counter *map_counter(void) {
  void *shared = mmap(NULL, sizeof(counter), PROT_READ | PROT_WRITE, MAP_SHARED, COUNTER, 0);
  CHECK(shared != MAP_FAILED);
  return (counter *)shared;
}

/* ---- a worker */

typedef struct received_block {
  plinth_ipc_memory_t memory;
  uint32_t word;
} received_block;

static uint32_t *pinned;
static uint64_t random_state;

/* The number of bytes of a block that are checked. */
static size_t checked_bytes(size_t bytes) { return bytes < 4 * KIB ? bytes : 4 * KIB; }

/* Returns the word of which the checked bytes consist. It must not change while any process holds the block. */
static uint32_t word_of(const void *memory, size_t bytes) {
  fetch(pinned, memory, checked_bytes(bytes));
  CHECK_EQ(words_mismatch(pinned, pinned[0], checked_bytes(bytes)), checked_bytes(bytes));
  return pinned[0];
}

static void check_and_close(received_block *held, int *count, int index) {
  CHECK_EQ(word_of(held[index].memory.pointer, held[index].memory.size), held[index].word);
  CHECK_OK(plinth_ipc_close(held[index].memory.pointer));
  held[index] = held[--*count];
}

static bool is_readable(int socket) {
  struct pollfd entry = {socket, POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLIN | POLLHUP)) != 0;
}

/* Whether a call on the socket of a process that may be dead succeeded. */
static bool succeeded(plinth_status_t status, int *socket) {
  if (status == PLINTH_ERROR_IPC_PEER_GONE) {
    CHECK(close(*socket) == 0);
    *socket = -1;
    return false;
  }
  if (status == PLINTH_ERROR_SYSTEM) {
    CHECK(errno != 0);
    return false;
  }
  CHECK_OK(status);
  return true;
}

static void send_one(int *socket) {
  static const size_t sizes[] = {512, 4 * KIB, 200 * KIB, 1 * MIB, 3 * MIB, 9 * MIB};
  const size_t bytes = sizes[random_next(&random_state) % 6];
  unsigned char *block = alloc_on(bytes, 0, NULL);
  fill_words(block, (uint32_t)random_next(&random_state), checked_bytes(bytes), NULL);
  CHECK_OK(plinth_stream_synchronize(NULL));
  (void)succeeded(plinth_ipc_send(*socket, block), socket);
  /* Free it also if it was sent: the receiver holds it. */
  release(block);
}

static void receive_one(int *socket, received_block *held, int *count, counter *shared) {
  received_block *block = &held[*count];
  block->memory.struct_size = sizeof block->memory;
  if (!succeeded(plinth_ipc_receive(*socket, -1, &block->memory), socket)) {
    return;
  }
  block->word = word_of(block->memory.pointer, block->memory.size);
  (*count)++;
  __atomic_fetch_add(&shared->received, 1, __ATOMIC_RELAXED);
}

HELPER(exchanges_blocks) {
  received_block held[MAX_HELD];
  int sockets[WORKERS - 1];
  int count = 0;
  counter *shared = map_counter();
  pinned = (uint32_t *)pinned_memory(4 * KIB);
  random_state = (uint64_t)getpid();
  for (int index = 0; index < WORKERS - 1; index++) {
    sockets[index] = FIRST_PEER + index;
    CHECK(fcntl(sockets[index], F_SETFL, O_NONBLOCK) == 0);
  }
  while (!is_readable(CONTROL)) {
    int *socket = &sockets[random_next(&random_state) % (WORKERS - 1)];
    if (*socket != -1 && is_readable(*socket) && count < MAX_HELD) {
      receive_one(socket, held, &count, shared);
    } else if (*socket != -1 && random_next(&random_state) % 2 == 0) {
      send_one(socket);
    }
    if (count > 0 && (count == MAX_HELD || random_next(&random_state) % 3 == 0)) {
      check_and_close(held, &count, (int)(random_next(&random_state) % (uint64_t)count));
    }
  }
  /* No process is killed any more. Closing the sockets drops the messages to this process. */
  while (count > 0) {
    check_and_close(held, &count, count - 1);
  }
  for (int index = 0; index < WORKERS - 1; index++) {
    CHECK(sockets[index] == -1 || close(sockets[index]) == 0);
  }
  CHECK_EQ(allocated(0), 0);
  EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(0) == 0);
  expect_nothing_left();
  if (on_host_device()) {
    CHECK_EQ(host_usage().memory_handles, 0);
    CHECK_EQ(host_usage().mappings, 0);
    CHECK_EQ(host_usage().device_bytes, 0);
  }
  CHECK(open_descriptors() < 64);
}

/* ---- the process that starts and kills them */

static int count_file;

static pid_t start_worker(int control, const int *peers) {
  fflush(NULL);
  const pid_t worker = fork();
  CHECK(worker >= 0);
  if (worker == 0) {
    bool good = dup2(control, CONTROL) == CONTROL && dup2(count_file, COUNTER) == COUNTER;
    for (int index = 0; index < WORKERS - 1; index++) {
      good = good && dup2(peers[index], FIRST_PEER + index) == FIRST_PEER + index;
    }
    if (good) {
      execl("/proc/self/exe", "worker", "exchanges_blocks", (char *)NULL);
    }
    _exit(126);
  }
  return worker;
}

static void make_socket_pair(int *ends) { CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0); }

static uint64_t received(const counter *shared) { return __atomic_load_n(&shared->received, __ATOMIC_RELAXED); }

/* Waits for `count` more transfers, or until there was none for 5 seconds: too few workers may be left. */
static void wait_for_transfers(const counter *shared, uint64_t count) {
  const uint64_t target = received(shared) + count;
  uint64_t last = received(shared);
  double since = seconds_now();
  while (received(shared) < target && seconds_now() < since + 5) {
    sleep_a_little();
    if (received(shared) != last) {
      last = received(shared);
      since = seconds_now();
    }
  }
}

/* Runs four processes, connected pairwise, and kills some of them. */
static void run_round(const counter *shared, uint64_t *state, uint64_t victims) {
  int sockets[WORKERS][WORKERS - 1];
  int filled[WORKERS] = {0};
  int controls[WORKERS][2];
  pid_t workers[WORKERS];
  bool killed[WORKERS] = {false};
  for (int one = 0; one < WORKERS; one++) {
    make_socket_pair(controls[one]);
    for (int other = one + 1; other < WORKERS; other++) {
      int ends[2];
      make_socket_pair(ends);
      sockets[one][filled[one]++] = ends[0];
      sockets[other][filled[other]++] = ends[1];
    }
  }
  for (int index = 0; index < WORKERS; index++) {
    workers[index] = start_worker(controls[index][1], sockets[index]);
  }
  for (int index = 0; index < WORKERS; index++) {
    CHECK(close(controls[index][1]) == 0);
    for (int other = 0; other < WORKERS - 1; other++) {
      CHECK(close(sockets[index][other]) == 0);
    }
  }
  wait_for_transfers(shared, TRANSFERS_BEFORE_KILL);
  for (uint64_t victim = 0; victim < victims; victim++) {
    const uint64_t index = random_next(state) % WORKERS;
    CHECK(killed[index] || kill(workers[index], SIGKILL) == 0);
    killed[index] = true;
    wait_for_transfers(shared, TRANSFERS_BETWEEN_KILLS + random_next(state) % TRANSFERS_BETWEEN_KILLS);
  }
  for (int index = 0; index < WORKERS; index++) {
    if (!killed[index]) {
      say(controls[index][0], 'e');
    }
  }
  for (int index = 0; index < WORKERS; index++) {
    int status = -1;
    CHECK_EQ(waitpid(workers[index], &status, 0), workers[index]);
    if (!killed[index]) {
      CHECK(WIFEXITED(status));
      CHECK_EQ(WEXITSTATUS(status), 0);
    }
    CHECK(close(controls[index][0]) == 0);
  }
}

TEST(no_memory_leaks_when_processes_are_killed) {
  uint64_t state = 1;
  count_file = memfd_create("count", 0);
  CHECK(count_file >= 0 && ftruncate(count_file, sizeof(counter)) == 0);
  CHECK_EQ(dup2(count_file, COUNTER), COUNTER);
  const counter *shared = map_counter();
  int rounds = 0;
  /* Create a context first, so that the memory of the driver itself does not count. */
  CHECK_OK(plinth_init());
  const size_t before = free_memory(0);
  const double end = seconds_now() + (on_host_device() ? 200 : 120);
  const uint64_t blocks = (uint64_t)some_rounds(BLOCKS);
  while (received(shared) < blocks && seconds_now() < end) {
    run_round(shared, &state, 1 + random_next(&state) % 3);
    rounds++;
  }
  printf("%llu blocks were received in %d rounds\n", (unsigned long long)received(shared), rounds);
  /* Slow machines may not reach the goal in the time, but must reach a tenth of it. */
  CHECK(received(shared) >= blocks / 10);
  EVENTUALLY(free_memory(0) + 64 * MIB > before);
}
