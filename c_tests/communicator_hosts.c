/* Ranks on two simulated hosts. Each host is a set of Linux namespaces with its own network, name and address, and a veth
 * interface connects them. Tests are skipped if namespaces or `ip` are not available. NCCL gets two host ids, so that it uses
 * the network. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=2 */
/* timeout: 120 */
/* library: fake_nccl */
/* alone: all; stands for several hosts by processes */
#include "ranks.h"

#include <poll.h>
#include <sched.h>
#include <stdarg.h>

enum { HOSTS = 2, COUNT = 70000 };

/* The folder of the store, which both hosts have mounted. */
static char folder[64];

/* Runs a shell command, without its output. Returns whether it succeeds. */
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

/* Moves this process to an empty network namespace. An unprivileged process needs a user namespace for that. */
static bool enter_new_network(void) {
  char users[64], groups[64];
  if (unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0) {
    return true;
  }
  snprintf(users, sizeof users, "0 %u 1", (unsigned)getuid());
  snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getgid());
  return unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWUTS) == 0 && put_line("/proc/self/setgroups", "deny") &&
         put_line("/proc/self/uid_map", users) && put_line("/proc/self/gid_map", groups);
}

static const char *interface_of(int host) { return host == 0 ? "left" : "right"; }

static void (*run_host)(int rank);

/* Without different host ids NCCL treats the ranks as being on one host. */
static void configure_nccl(const char *host, const char *interface) {
  setenv("NCCL_HOSTID", host, 1);
  setenv("NCCL_SOCKET_IFNAME", interface, 1);
  setenv("NCCL_IB_DISABLE", "1", 1);
}

/* The process of a host: requests its interface, configures it, and runs its rank of the test. */
static void run_in_namespace(int rank) {
  char word = 0, name[16];
  snprintf(name, sizeof name, "host-%d", rank);
  if (unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0 || sethostname(name, strlen(name)) != 0) {
    SKIP("needs namespaces");
  }
  CHECK_EQ(write(processes.pipes[rank][1], &word, 1), 1);
  EVENTUALLY(command("ip link show %s", interface_of(rank)));
  CHECK(command("ip address add 10.77.0.%d/24 dev %s", rank + 1, interface_of(rank)));
  CHECK(command("ip link set %s up && ip link set lo up", interface_of(rank)));
  configure_nccl(name, interface_of(rank));
  run_host(rank);
}

/* Both hosts exit with status 0, or were killed by the test. */
static void expect_hosts(void) {
  for (int host = 0; host < HOSTS; host++) {
    int status = 0;
    CHECK(waitpid(processes.pids[host], &status, 0) == processes.pids[host]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
      SKIP("a host process was skipped");
    }
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  }
}

/* The process that connects the hosts and waits for them. Its exit status is that of the test. */
static void connect_hosts(void) {
  if (!enter_new_network() || !command("ip link add left type veth peer name right")) {
    SKIP("needs namespaces and ip");
  }
  start_processes(HOSTS, run_in_namespace);
  for (int host = 0; host < HOSTS; host++) {
    char word = 0;
    struct pollfd ready = {processes.pipes[host][0], POLLIN, 0};
    if (poll(&ready, 1, 10000) != 1 || read(ready.fd, &word, 1) != 1) {
      SKIP("needs namespaces");
    }
    CHECK(command("ip link set %s netns %d", interface_of(host), (int)processes.pids[host]));
  }
  expect_hosts();
}

static void make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/plinth-hosts-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
}

/* Runs a body on two hosts. */
static void run_hosts(void (*body)(int rank)) {
  int status = 0;
  run_host = body;
  make_folder();
  const pid_t connector = start_child(connect_hosts);
  CHECK(waitpid(connector, &status, 0) == connector);
  CHECK(command("rm -r '%s'", folder));
  if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
    SKIP("a host process was skipped");
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A host that differs only by its name, and uses the loopback interface. */
static void run_on_loopback(int rank) {
  char name[16];
  snprintf(name, sizeof name, "host-%d", rank);
  configure_nccl(name, "lo");
  run_host(rank);
}

/* The same without namespaces; NCCL still uses its network transport. */
static void run_hosts_on_loopback(void (*body)(int rank)) {
  run_host = body;
  make_folder();
  start_processes(HOSTS, run_on_loopback);
  expect_hosts();
  CHECK(command("rm -r '%s'", folder));
}

static plinth_store_t open_store(void) {
  plinth_store_t store = NULL;
  need_devices(HOSTS);
  need_nccl();
  CHECK_OK(plinth_store_create(folder, &store));
  return store;
}

static plinth_communicator_t join(int rank, plinth_store_t store, uint64_t milliseconds) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t communicator = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_NCCL, milliseconds, 0);
  CHECK_OK(plinth_store_unique_id(store, "id", rank, HOSTS, 20000, id));
  CHECK_OK(plinth_communicator_init_rank(HOSTS, id, rank, rank, &options, &communicator));
  return communicator;
}

static void communicate(int rank) {
  plinth_store_t store = open_store();
  plinth_communicator_t communicator = join(rank, store, 30000);
  plinth_stream_t stream = stream_on(rank);
  float *from = floats_on(rank, COUNT, (float)rank, 1), *to = floats_on(rank, COUNT, -1, 0);
  float *all = floats_on(rank, (size_t)HOSTS * COUNT, -1, 0);
  CHECK_OK(plinth_communicator_all_reduce(communicator, from, to, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_all_gather(communicator, from, all, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_communicator_wait(communicator, 30000, stream));
  expect_floats(to, COUNT, 1, 2);
  expect_floats(all, COUNT, 0, 1);
  expect_floats(all + COUNT, COUNT, 1, 1);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(communicator, from, COUNT, FLOAT32, 1 - rank, stream));
  CHECK_OK(plinth_communicator_recv(communicator, to, COUNT, FLOAT32, 1 - rank, stream));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(communicator, 30000, stream));
  expect_floats(to, COUNT, (float)(1 - rank), 1);
  CHECK_OK(plinth_store_barrier(store, "done", HOSTS, 20000));
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_OK(plinth_store_destroy(store));
}

TEST(ranks_of_two_hosts_communicate) { run_hosts(communicate); }

TEST(ranks_of_two_hosts_on_loopback_communicate) { run_hosts_on_loopback(communicate); }

/* Ranks of two hosts share no memory: without a named engine they use NCCL. */
static void select_an_engine(int rank) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  uint32_t engine = 0;
  plinth_communicator_t communicator = NULL;
  plinth_store_t store = open_store();
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, 30000, 0);
  CHECK_OK(plinth_store_unique_id(store, "id", rank, HOSTS, 20000, id));
  CHECK_OK(plinth_communicator_init_rank(HOSTS, id, rank, rank, &options, &communicator));
  CHECK_OK(plinth_communicator_engine(communicator, &engine));
  CHECK_EQ(engine, PLINTH_ENGINE_NCCL);
  CHECK_OK(plinth_store_barrier(store, "done", HOSTS, 20000));
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_OK(plinth_store_destroy(store));
}

TEST(ranks_of_two_hosts_use_nccl) { run_hosts(select_an_engine); }

/* A host dies between two collectives. The other gets an error, aborts its communicator, and continues alone. */
static void lose_a_host(int rank) {
  plinth_store_t store = open_store();
  plinth_communicator_t communicator = join(rank, store, 30000);
  plinth_stream_t stream = stream_on(rank);
  float *memory = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(communicator, 30000, stream));
  CHECK_OK(plinth_store_barrier(store, "reduced", HOSTS, 20000));
  if (rank == 1) {
    raise(SIGKILL);
  }
  plinth_status_t status =
      plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream);
  if (status == PLINTH_OK) {
    status = plinth_communicator_wait(communicator, 8000, stream);
  }
  CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_TIMED_OUT || status == PLINTH_ERROR_NCCL);
  CHECK_OK(plinth_communicator_abort(communicator));
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_memset(memory, 0, COUNT * sizeof(float), stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_floats(memory, COUNT, 0, 0);
  CHECK_OK(plinth_store_destroy(store));
}

TEST(the_death_of_a_host_is_reported) { run_hosts(lose_a_host); }

TEST(the_death_of_a_host_on_loopback_is_reported) { run_hosts_on_loopback(lose_a_host); }
