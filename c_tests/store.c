/* Stores, for the rendezvous of processes. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "ranks.h"

#include <sys/stat.h>

static char address[256];

/* Makes a folder for this test. */
static void choose_folder(void) {
  char folder[] = "/tmp/plinth-store-test-XXXXXX";
  CHECK(mkdtemp(folder) != NULL);
  snprintf(address, sizeof address, "file://%s", folder);
}

static void remove_folder(void) {
  char command[300];
  snprintf(command, sizeof command, "rm -r '%s'", address + strlen("file://"));
  CHECK_EQ(system(command), 0);
}

static plinth_store_t open_store(bool serves) {
  plinth_store_t store = NULL;
  CHECK_OK(plinth_store_create(address, serves, 20000, &store));
  CHECK(store != NULL);
  return store;
}

TEST(values_are_set_and_read) {
  char value[16] = {0};
  size_t bytes = 77;
  int64_t sum = 0;
  choose_folder();
  plinth_store_t store = open_store(false);
  CHECK_OK(plinth_store_set(store, "color", "green", 5, 1000));
  CHECK_OK(plinth_store_get(store, "color", 1000, value, sizeof value, &bytes));
  CHECK_EQ(bytes, 5);
  CHECK(memcmp(value, "green", 5) == 0);
  CHECK_OK(plinth_store_set(store, "nothing", NULL, 0, 1000));
  CHECK_OK(plinth_store_get(store, "nothing", 1000, NULL, 0, &bytes));
  CHECK_EQ(bytes, 0);
  CHECK_OK(plinth_store_add(store, "sum", 40, 1000, &sum));
  CHECK_OK(plinth_store_add(store, "sum", 2, 1000, &sum));
  CHECK_EQ(sum, 42);
  /* A buffer that is too small gets the length, and no value. */
  memset(value, '-', sizeof value);
  CHECK_STATUS(plinth_store_get(store, "color", 1000, value, 3, &bytes), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(bytes, 5);
  CHECK_EQ(value[0], '-');
  CHECK_STATUS(plinth_store_get(store, "absent", 50, value, 3, &bytes), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("\"absent\"");
  CHECK_OK(plinth_store_destroy(store));
  remove_folder();
}

TEST(invalid_arguments_are_errors) {
  plinth_store_t store = UNTOUCHED_POINTER;
  int32_t port = 0;
  CHECK_STATUS(plinth_store_create("http://x", false, 10, &store), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_create(NULL, false, 10, &store), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_create("tcp://127.0.0.1:1", false, 50, &store), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("tcp://127.0.0.1:1");
  CHECK_SAME(store, UNTOUCHED_POINTER);
  choose_folder();
  store = open_store(false);
  CHECK_STATUS(plinth_store_port(store, &port), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_set(store, "", "x", 1, 10), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_set(store, NULL, "x", 1, 10), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_set(store, "x", NULL, 1, 10), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_barrier(store, "x", 0, 10), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_barrier(store, "x", 2, 50), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("1 of 2 did not come to the barrier \"x\"");
  CHECK_OK(plinth_store_destroy(store));
  CHECK_STATUS(plinth_store_set(store, "x", "x", 1, 10), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_store_destroy(store), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_store_destroy(NULL));
  remove_folder();
}

static void rendezvous(int rank) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE], first[PLINTH_UNIQUE_ID_SIZE];
  char name[16];
  plinth_store_t store = open_store(rank == 0);
  if (rank == 0 && strncmp(address, "tcp", 3) == 0) {
    int32_t port = 0;
    CHECK_OK(plinth_store_port(store, &port));
    for (int other = 1; other < processes.count; other++) {
      CHECK_EQ(write(processes.pipes[other][1], &port, sizeof port), sizeof port);
    }
  }
  CHECK_OK(plinth_store_unique_id(store, "first", rank, processes.count, 20000, id));
  snprintf(name, sizeof name, "rank %d", rank);
  CHECK_OK(plinth_store_set(store, name, id, sizeof id, 20000));
  CHECK_OK(plinth_store_barrier(store, "all have the id", processes.count, 20000));
  CHECK_OK(plinth_store_get(store, "rank 0", 20000, first, sizeof first, NULL));
  CHECK(memcmp(id, first, sizeof id) == 0);
  CHECK_OK(plinth_store_barrier(store, "end", processes.count, 20000));
  CHECK_OK(plinth_store_destroy(store));
}

static void rendezvous_over_tcp(int rank) {
  int32_t port = 0;
  if (rank != 0) {
    CHECK_EQ(read(processes.pipes[rank][0], &port, sizeof port), sizeof port);
  }
  snprintf(address, sizeof address, "tcp://127.0.0.1:%d", (int)port);
  rendezvous(rank);
}

TEST(processes_rendezvous_in_a_folder) {
  choose_folder();
  run_processes(4, rendezvous);
  remove_folder();
}

TEST(processes_rendezvous_over_tcp) { run_processes(4, rendezvous_over_tcp); }

/* Rank 0 ends while the other one waits. */
static void lose_the_server(int rank) {
  int32_t port = 0;
  if (rank == 0) {
    snprintf(address, sizeof address, "tcp://127.0.0.1:0");
    plinth_store_t store = open_store(true);
    CHECK_OK(plinth_store_port(store, &port));
    CHECK_EQ(write(processes.pipes[1][1], &port, sizeof port), sizeof port);
    CHECK_OK(plinth_store_barrier(store, "hello", 2, 20000));
    CHECK_OK(plinth_store_destroy(store));
    return;
  }
  CHECK_EQ(read(processes.pipes[1][0], &port, sizeof port), sizeof port);
  snprintf(address, sizeof address, "tcp://127.0.0.1:%d", (int)port);
  plinth_store_t store = open_store(false);
  CHECK_OK(plinth_store_barrier(store, "hello", 2, 20000));
  char value[4];
  const plinth_status_t status = plinth_store_get(store, "never", 5000, value, sizeof value, NULL);
  CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_TIMED_OUT);
  CHECK_OK(plinth_store_destroy(store));
}

TEST(a_lost_server_is_an_error) { run_processes(2, lose_the_server); }
