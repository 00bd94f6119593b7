/*
 * Pairs of processes that share memory: this program, and itself executed once more with a Unix socket between the two.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PEERING_H
#define PEERING_H

#include "allocating.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* The file descriptor of the socket in the started process. */
enum { SOCKET = 90 };

/* The size of the blocks that most of the tests share. */
#define BLOCK (3 * MIB)

/* Whether the allocator uses segments of cuMemAlloc (expandable_segments:False) and not mapped handles. */
static inline bool has_segments(void) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen != NULL && strstr(chosen, "False") != NULL;
}

typedef struct peer {
  pid_t process;
  int socket;
} peer;

/* Starts a HELPER of this program in a new process, connected by a socket of this type. */
static inline peer start_peer(const char *helper, int type) {
  int ends[2];
  peer started;
  CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
  fflush(NULL);
  started.process = fork();
  CHECK(started.process >= 0);
  if (started.process == 0) {
    if (dup2(ends[1], SOCKET) != SOCKET) {
      _exit(125);
    }
    execl("/proc/self/exe", "peer", helper, (char *)NULL);
    _exit(126);
  }
  CHECK(close(ends[1]) == 0);
  started.socket = ends[0];
  return started;
}

static inline void say(int socket, char word) { CHECK_EQ(send(socket, &word, 1, MSG_NOSIGNAL), 1); }

static inline void expect_to_hear(int socket, char word) {
  char heard = 0;
  CHECK_EQ(recv(socket, &heard, 1, 0), 1);
  CHECK_EQ(heard, word);
}

static inline void expect_end(peer started) {
  int status = -1;
  CHECK_EQ(waitpid(started.process, &status, 0), started.process);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK(close(started.socket) == 0);
}

/* Kills a process with SIGKILL, like a crash. */
static inline void expect_killed(peer started) {
  int status = -1;
  CHECK(kill(started.process, SIGKILL) == 0);
  CHECK_EQ(waitpid(started.process, &status, 0), started.process);
  CHECK(WIFSIGNALED(status));
  CHECK(close(started.socket) == 0);
}

static inline plinth_ipc_memory_t receive_from(int socket) {
  plinth_ipc_memory_t memory = {sizeof memory, NULL, UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
  CHECK_OK(plinth_ipc_receive(socket, -1, &memory));
  CHECK(memory.pointer != NULL);
  CHECK_EQ(memory.reserved, 0);
  return memory;
}

/* Whether device memory holds a pattern. */
static inline bool has_pattern(const void *memory, size_t bytes, unsigned seed) {
  unsigned char *host = (unsigned char *)pageable_memory(bytes);
  size_t wrong;
  fetch(host, memory, bytes);
  wrong = pattern_mismatch(host, bytes, seed);
  free(host);
  return wrong == bytes;
}

static inline void put_pattern(void *memory, size_t bytes, unsigned seed) {
  unsigned char *host = (unsigned char *)pageable_memory(bytes);
  pattern_fill(host, bytes, seed);
  put(memory, host, bytes);
  free(host);
}

/* Returns the number of open file descriptors below 1024. */
static inline size_t open_descriptors(void) {
  size_t count = 0;
  for (int number = 0; number < 1024; number++) {
    count += fcntl(number, F_GETFD) != -1;
  }
  return count;
}

/* Sends a block with an unfinished fill to a helper, which must see the bytes of that fill. Waits for the helper's end. */
static inline void expect_receiver_to_wait(const char *helper) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  unsigned char *block = alloc_on(BLOCK, 0, stream);
  const peer other = start_peer(helper, SOCK_STREAM);
  CHECK_OK(plinth_memset(block, 1, BLOCK, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_memset(block, 9, BLOCK, stream));
  CHECK_OK(plinth_ipc_send(other.socket, block));
  expect_to_hear(other.socket, 'w');
  gate_open(held);
  expect_end(other);
  release(block);
}

/* All memory is freed. The other processes may need a moment to end. */
static inline void expect_all_freed(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(device) == 0);
  }
  expect_nothing_left();
}

/* Other processes still hold a block that was freed here. */
static inline void expect_still_held(const void *block) {
  CHECK_OK(plinth_ipc_collect());
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) >= BLOCK);
  CHECK(!comes_back(block, BLOCK, 0, NULL));
  CHECK_OK(plinth_empty_cache());
  expect_sound();
}

#endif
