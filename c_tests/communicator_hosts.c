/* Ranks on hosts of their own: each has a network, a name and an address, and a cable to the other. Linux's namespaces make
 * the hosts; where they may not be made, or there is no `ip`, the tests are skipped. NCCL, told that the hosts are two, goes
 * over the network. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=2 */
/* timeout: 120 */
/* library: fake_nccl */
/* alone: all; stands for several hosts by processes */
#include "ranks.h"

#include <poll.h>
#include <sched.h>
#include <stdarg.h>

enum { HOSTS = 2, COUNT = 70000 };

/* Where rank 0 answers. */
static const char *address = "tcp://10.77.0.1:29577";

/* Whether a command of the shell succeeds. Nobody sees what it says. */
static bool command(const char *format, ...) {
  char line[512], quiet[600];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  snprintf(quiet, sizeof quiet, "{ %s; } >/dev/null 2>&1", line);
  return system(quiet) == 0;
}

static bool put_line(const char *file, const char *line) {
  FILE *out = fopen(file, "w");
  if (out == NULL) {
    return false;
  }
  const bool written = fputs(line, out) >= 0;
  return fclose(out) == 0 && written;
}

/* Leaves this process's network for an empty one. Who may not do so as itself may as the master of its own namespace. */
static bool leave_the_network(void) {
  char users[64], groups[64];
  if (unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0) {
    return true;
  }
  snprintf(users, sizeof users, "0 %u 1", (unsigned)getuid());
  snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getgid());
  return unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWUTS) == 0 && put_line("/proc/self/setgroups", "deny") &&
         put_line("/proc/self/uid_map", users) && put_line("/proc/self/gid_map", groups);
}

static const char *end_of_cable(int host) { return host == 0 ? "left" : "right"; }

static void (*run_host)(int rank);

/* NCCL takes ranks for those of one host unless it is told otherwise. */
static void tell_nccl(const char *host, const char *interface) {
  setenv("NCCL_HOSTID", host, 1);
  setenv("NCCL_SOCKET_IFNAME", interface, 1);
  setenv("NCCL_IB_DISABLE", "1", 1);
}

/* A host: it asks for its cable, plugs it in, and runs its part of the test. */
static void be_host(int rank) {
  char word = 0, name[16];
  snprintf(name, sizeof name, "host-%d", rank);
  if (unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0 || sethostname(name, strlen(name)) != 0) {
    SKIP("needs namespaces");
  }
  CHECK_EQ(write(processes.pipes[rank][1], &word, 1), 1);
  EVENTUALLY(command("ip link show %s", end_of_cable(rank)));
  CHECK(command("ip address add 10.77.0.%d/24 dev %s", rank + 1, end_of_cable(rank)));
  CHECK(command("ip link set %s up && ip link set lo up", end_of_cable(rank)));
  tell_nccl(name, end_of_cable(rank));
  run_host(rank);
}

/* Both hosts end well, or as the test killed them. */
static void expect_hosts(void) {
  for (int host = 0; host < HOSTS; host++) {
    int status = 0;
    CHECK(waitpid(processes.pids[host], &status, 0) == processes.pids[host]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
      SKIP("its hosts are");
    }
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  }
}

/* What is between the hosts, and waits for them; its exit status is the test's. */
static void lay_the_cable(void) {
  if (!leave_the_network() || !command("ip link add left type veth peer name right")) {
    SKIP("needs namespaces and ip");
  }
  start_processes(HOSTS, be_host);
  for (int host = 0; host < HOSTS; host++) {
    char word = 0;
    struct pollfd ready = {processes.pipes[host][0], POLLIN, 0};
    if (poll(&ready, 1, 10000) != 1 || read(ready.fd, &word, 1) != 1) {
      SKIP("needs namespaces");
    }
    CHECK(command("ip link set %s netns %d", end_of_cable(host), (int)processes.pids[host]));
  }
  expect_hosts();
}

/* Runs a body as two hosts. */
static void run_hosts(void (*body)(int rank)) {
  int status = 0;
  run_host = body;
  const pid_t cable = start_child(lay_the_cable);
  CHECK(waitpid(cable, &status, 0) == cable);
  if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
    SKIP("its hosts are");
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A host in name only: all are on the loopback of this one. */
static void be_host_in_name(int rank) {
  char name[16];
  snprintf(name, sizeof name, "host-%d", rank);
  tell_nccl(name, "lo");
  run_host(rank);
}

/* The same where no namespaces can be made; what is between the ranks is the network's code all the same. */
static void run_hosts_in_name(void (*body)(int rank)) {
  run_host = body;
  address = "tcp://127.0.0.1:29578";
  start_processes(HOSTS, be_host_in_name);
  expect_hosts();
}

static plinth_store_t meet(int rank) {
  plinth_store_t store = NULL;
  need_devices(HOSTS);
  need_nccl();
  CHECK_OK(plinth_store_create(address, rank == 0, 20000, &store));
  return store;
}

static plinth_communicator_t join(int rank, plinth_store_t store, uint64_t milliseconds) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t own = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_NCCL, milliseconds, 0);
  CHECK_OK(plinth_store_unique_id(store, "id", rank, HOSTS, 20000, id));
  CHECK_OK(plinth_communicator_init_rank(HOSTS, id, rank, rank, &options, &own));
  return own;
}

static void work_together(int rank) {
  plinth_store_t store = meet(rank);
  plinth_communicator_t own = join(rank, store, 30000);
  plinth_stream_t stream = stream_on(rank);
  float *from = floats_on(rank, COUNT, (float)rank, 1), *to = floats_on(rank, COUNT, -1, 0);
  float *all = floats_on(rank, (size_t)HOSTS * COUNT, -1, 0);
  CHECK_OK(plinth_communicator_all_reduce(own, from, to, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_all_gather(own, from, all, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_communicator_wait(own, 30000, stream));
  expect_floats(to, COUNT, 1, 2);
  expect_floats(all, COUNT, 0, 1);
  expect_floats(all + COUNT, COUNT, 1, 1);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(own, from, COUNT, FLOAT32, 1 - rank, stream));
  CHECK_OK(plinth_communicator_recv(own, to, COUNT, FLOAT32, 1 - rank, stream));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(own, 30000, stream));
  expect_floats(to, COUNT, (float)(1 - rank), 1);
  CHECK_OK(plinth_store_barrier(store, "done", HOSTS, 20000));
  CHECK_OK(plinth_communicator_destroy(own));
  CHECK_OK(plinth_store_destroy(store));
}

TEST(ranks_of_two_hosts_work_together) { run_hosts(work_together); }

TEST(ranks_of_two_hosts_in_name_work_together) { run_hosts_in_name(work_together); }

/* What waits for the other host ends by its time while the cable is cut, and goes on when it is whole again. */
static void cut_the_cable(int rank) {
  char value[8];
  size_t bytes = 0;
  plinth_store_t store = meet(rank);
  CHECK_OK(plinth_store_barrier(store, "all here", HOSTS, 20000));
  if (rank == 0) {
    CHECK(command("ip link set left down"));
    sleep_milliseconds(1500);
    CHECK(command("ip link set left up"));
    CHECK_OK(plinth_store_set(store, "again", "whole", 5, 1000));
    CHECK_OK(plinth_store_barrier(store, "end", HOSTS, 30000));
  } else {
    EVENTUALLY(!command("ip link show right | grep -q LOWER_UP") || command("ip link show right | grep -q NO-CARRIER"));
    const double start = seconds_now();
    const plinth_status_t status = plinth_store_get(store, "again", 400, value, sizeof value, &bytes);
    CHECK(status == PLINTH_ERROR_TIMED_OUT || status == PLINTH_ERROR_PEER_LOST);
    CHECK(seconds_now() - start < 5);
    CHECK_OK(plinth_store_get(store, "again", 30000, value, sizeof value, &bytes));
    CHECK(bytes == 5 && memcmp(value, "whole", 5) == 0);
    CHECK_OK(plinth_store_barrier(store, "end", HOSTS, 30000));
  }
  CHECK_OK(plinth_store_destroy(store));
}

TEST(a_cut_cable_ends_what_waits) { run_hosts(cut_the_cable); }

/* A host dies in the middle; the other is told, gives its communicator up, and works on alone. */
static void lose_a_host(int rank) {
  plinth_store_t store = meet(rank);
  plinth_communicator_t own = join(rank, store, 3000);
  plinth_stream_t stream = stream_on(rank);
  float *memory = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_all_reduce(own, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(own, 30000, stream));
  CHECK_OK(plinth_store_barrier(store, "reduced", HOSTS, 20000));
  if (rank == 1) {
    raise(SIGKILL);
  }
  plinth_status_t status =
      plinth_communicator_all_reduce(own, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream);
  if (status == PLINTH_OK) {
    status = plinth_communicator_wait(own, 8000, stream);
  }
  CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_TIMED_OUT || status == PLINTH_ERROR_NCCL);
  CHECK_OK(plinth_communicator_abort(own));
  CHECK_OK(plinth_communicator_destroy(own));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_memset(memory, 0, COUNT * sizeof(float), stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_floats(memory, COUNT, 0, 0);
  CHECK_OK(plinth_store_destroy(store));
}

TEST(a_host_that_dies_is_missed) { run_hosts(lose_a_host); }

TEST(a_host_in_name_that_dies_is_missed) { run_hosts_in_name(lose_a_host); }
