/*
 * Messages about shared memory that stop in the middle, from peers that are silent, slow or dead, and sockets that cannot
 * carry them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: too_many_descriptors_in_flight_abort_the_message; forks children that use the device, and changes the user */
#include "driver.h"
#include "peering.h"
#include "process.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

/* The size of a message's header, and the limit of most waits here. */
enum { HEADER = 256, LIMIT_MILLISECONDS = 300 };

static void connect_pair(int type, int *ends) { CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0); }

static void close_pair(const int *ends) { CHECK(close(ends[0]) == 0 && close(ends[1]) == 0); }

static void limit_waits(int socket, int option) {
  const struct timeval limit = {0, LIMIT_MILLISECONDS * 1000};
  CHECK(setsockopt(socket, SOL_SOCKET, option, &limit, sizeof limit) == 0);
}

static plinth_ipc_memory_t untouched_memory(void) {
  const plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
  return memory;
}

static void expect_failed_receive(int socket, plinth_status_t status, const char *why) {
  plinth_ipc_memory_t memory = untouched_memory();
  CHECK_STATUS(plinth_ipc_receive(socket, -1, &memory), status);
  CHECK_MESSAGE(why);
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
}

/* Sends bytes with one descriptor, and returns the number of bytes; -1 on failure. */
static ssize_t send_with_descriptor(int socket, const void *bytes, size_t size, int descriptor) {
  char control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {(void *)(uintptr_t)bytes, size};
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* ---- the wrong kind of socket */

TEST(datagram_sockets_are_refused) {
  int ends[2];
  plinth_ipc_memory_t memory = untouched_memory();
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  connect_pair(SOCK_DGRAM, ends);
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("SOCK_STREAM");
  CHECK_STATUS(plinth_ipc_receive(ends[1], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("SOCK_STREAM");
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  close_pair(ends);
  release(block);
  expect_all_freed();
}

/* ---- silent, slow and dead senders */

/* Receives from a sender that stops after a part of the header, or after all of it. */
static void receive_first_bytes(int type, size_t count) {
  int ends[2];
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_export(block, &message));
  for (int is_dead = 0; is_dead < 2; is_dead++) {
    connect_pair(type, ends);
    limit_waits(ends[1], SO_RCVTIMEO);
    CHECK_EQ(send_with_descriptor(ends[0], message.bytes, count, message.descriptors[0]), count);
    const double start = seconds_now();
    if (is_dead) {
      CHECK(close(ends[0]) == 0);
      expect_failed_receive(ends[1], PLINTH_ERROR_IPC_PEER_GONE, "the other end of the socket is closed");
      CHECK(close(ends[1]) == 0);
    } else {
      expect_failed_receive(ends[1], PLINTH_ERROR_TIMED_OUT, "SO_RCVTIMEO");
      CHECK(seconds_now() - start >= LIMIT_MILLISECONDS / 1000.0);
      close_pair(ends);
    }
    CHECK(seconds_now() - start < 10);
  }
  CHECK_OK(plinth_ipc_export_free(&message));
  release(block);
  expect_all_freed();
}

TEST(a_receiver_does_not_wait_forever_for_the_rest_of_a_header) { receive_first_bytes(SOCK_STREAM, 100); }

TEST(a_receiver_does_not_wait_forever_for_the_chunks) { receive_first_bytes(SOCK_STREAM, HEADER); }

TEST(a_receiver_does_not_wait_forever_for_the_next_packet) { receive_first_bytes(SOCK_SEQPACKET, HEADER); }

TEST(a_blocking_socket_may_wait_for_the_start_of_a_message_with_its_own_limit) {
  int ends[2];
  connect_pair(SOCK_STREAM, ends);
  limit_waits(ends[1], SO_RCVTIMEO);
  const double start = seconds_now();
  expect_failed_receive(ends[1], PLINTH_ERROR_TIMED_OUT, "SO_RCVTIMEO");
  CHECK(seconds_now() - start >= LIMIT_MILLISECONDS / 1000.0);
  CHECK(seconds_now() - start < 10);
  close_pair(ends);
}

static int slow_end;
static volatile bool has_ended;

/* Sends a byte from time to time, so that the receiver always makes progress. */
static void *send_slowly(void *context) {
  (void)context;
  static const char magic[8] = "plinthIP";
  for (size_t index = 0; !has_ended; index++) {
    const char byte = index < sizeof magic ? magic[index] : 0;
    if (index < HEADER) {
      CHECK_EQ(send(slow_end, &byte, 1, MSG_NOSIGNAL), 1);
    }
    sleep_milliseconds(LIMIT_MILLISECONDS / 10);
  }
  return NULL;
}

TEST(the_limit_holds_for_the_message_and_not_for_each_byte) {
  int ends[2];
  pthread_t thread;
  connect_pair(SOCK_STREAM, ends);
  limit_waits(ends[1], SO_RCVTIMEO);
  slow_end = ends[0];
  has_ended = false;
  CHECK(pthread_create(&thread, NULL, send_slowly, NULL) == 0);
  const double start = seconds_now();
  expect_failed_receive(ends[1], PLINTH_ERROR_TIMED_OUT, "SO_RCVTIMEO");
  CHECK(seconds_now() - start < HEADER * LIMIT_MILLISECONDS / 10 / 1000.0 / 2);
  has_ended = true;
  CHECK(pthread_join(thread, NULL) == 0);
  close_pair(ends);
}

static void ignore_signal(int number) { (void)number; }

/* Signals must not start the limit anew. */
TEST(the_limit_holds_while_signals_arrive) {
  int ends[2];
  struct sigaction action, old;
  const struct itimerval interval = {{0, 100}, {0, 100}}, none = {{0, 0}, {0, 0}};
  memset(&action, 0, sizeof action);
  action.sa_handler = ignore_signal;
  connect_pair(SOCK_STREAM, ends);
  limit_waits(ends[1], SO_RCVTIMEO);
  CHECK_EQ(send(ends[0], "plinth", 6, 0), 6);
  CHECK(sigaction(SIGALRM, &action, &old) == 0);
  CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0);
  const double start = seconds_now();
  expect_failed_receive(ends[1], PLINTH_ERROR_TIMED_OUT, "SO_RCVTIMEO");
  CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
  CHECK(sigaction(SIGALRM, &old, NULL) == 0);
  CHECK(seconds_now() - start < 10);
  close_pair(ends);
}

/* ---- a receiver that does not read */

TEST(a_sender_does_not_wait_forever) {
  int ends[2];
  char byte = 0;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  connect_pair(SOCK_STREAM, ends);
  while (send(ends[0], &byte, 1, MSG_DONTWAIT) == 1) {
  }
  limit_waits(ends[0], SO_SNDTIMEO);
  const double start = seconds_now();
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("SO_SNDTIMEO");
  CHECK(seconds_now() - start < 10);
  close_pair(ends);
  release(block);
  expect_all_freed();
}

/* ---- descriptors in flight */

enum { FEW = 100 };

/* Becomes a user without other processes and without the privileges that lift the limit. */
static void become_unprivileged(void) {
  struct rlimit limit = {FEW, FEW};
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (getuid() == 0) {
    const uid_t user = 1000000 + (uid_t)getppid();
    CHECK(setresuid(user, user, user) == 0);
  }
  /* The host device opens files of /proc/self, which belong to root after a change of the user. */
  CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static int message_ends[2], go_ahead[2];

static void receive_the_rest(void) {
  char byte = 0;
  become_unprivileged();
  CHECK(close(message_ends[0]) == 0 && close(go_ahead[1]) == 0);
  /* Receiving the header would take its descriptor out of flight. */
  if (read(go_ahead[0], &byte, 1) == 0) {
    return;
  }
  expect_failed_receive(message_ends[1], PLINTH_ERROR_IPC_PEER_GONE, "the sender aborted the message");
  say(message_ends[1], 'n');
  /* The socket can carry the next message. */
  const plinth_ipc_memory_t memory = receive_from(message_ends[1]);
  CHECK_EQ(memory.size, BLOCK);
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

static void send_while_many_are_in_flight(void) {
  int filled[2];
  char byte = 0;
  become_unprivileged();
  if (access("/proc/self/fd", X_OK) != 0) {
    _exit(HARNESS_SKIPPED);
  }
  CHECK(close(message_ends[1]) == 0 && close(go_ahead[0]) == 0);
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  connect_pair(SOCK_STREAM, filled);
  for (int index = 0; index < FEW; index++) {
    CHECK_EQ(send_with_descriptor(filled[0], &byte, 1, filled[1]), 1);
  }
  /* The kernel compares before it counts, so one more goes. */
  CHECK_EQ(send_with_descriptor(filled[0], &byte, 1, filled[1]), 1);
  if (send_with_descriptor(filled[0], &byte, 1, filled[1]) == 1) {
    _exit(HARNESS_SKIPPED);
  }
  CHECK_EQ(errno, ETOOMANYREFS);
  CHECK_EQ(recv(filled[1], &byte, 1, 0), 1);
  /* The header goes, the chunks do not. */
  CHECK_STATUS(plinth_ipc_send(message_ends[0], block), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("ETOOMANYREFS");
  CHECK_MESSAGE("in flight");
  say(go_ahead[1], 'g');
  expect_to_hear(message_ends[0], 'n');
  for (int index = 0; index < 5; index++) {
    CHECK_EQ(recv(filled[1], &byte, 1, 0), 1);
  }
  CHECK_OK(plinth_ipc_send(message_ends[0], block));
  release(block);
}

TEST(too_many_descriptors_in_flight_abort_the_message) {
  int status = 0;
  connect_pair(SOCK_STREAM, message_ends);
  connect_pair(SOCK_STREAM, go_ahead);
  const pid_t receiver = start_child(receive_the_rest);
  const pid_t sender = start_child(send_while_many_are_in_flight);
  close_pair(message_ends);
  close_pair(go_ahead);
  EVENTUALLY(waitpid(sender, &status, WNOHANG) == sender);
  expect_child(receiver, 0);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == HARNESS_SKIPPED) {
    SKIP("the system does not limit descriptors in flight for other users, or hides /proc from them");
  }
  CHECK_EQ(WEXITSTATUS(status), 0);
}
