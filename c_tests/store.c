/* Stores, for the rendezvous of processes. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "interrupting.h"
#include "ranks.h"

static char folder[64];

/* Makes a folder for this test. */
static void choose_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/plinth-store-test-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
}

static void remove_folder(void) {
  char command[100];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  CHECK_EQ(system(command), 0);
}

static plinth_store_t open_store(void) {
  plinth_store_t store = NULL;
  CHECK_OK(plinth_store_create(folder, &store));
  CHECK(store != NULL);
  return store;
}

TEST(values_are_set_once_and_read) {
  char value[16] = {0};
  size_t bytes = 77;
  choose_folder();
  plinth_store_t store = open_store();
  CHECK_OK(plinth_store_set(store, "color", "green", 5));
  CHECK_OK(plinth_store_get(store, "color", 1000, value, sizeof value, &bytes));
  CHECK_EQ(bytes, 5);
  CHECK(memcmp(value, "green", 5) == 0);
  CHECK_STATUS(plinth_store_set(store, "color", "red", 3), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("\"color\" is used already");
  CHECK_OK(plinth_store_get(store, "color", 0, value, sizeof value, &bytes));
  CHECK(bytes == 5 && memcmp(value, "green", 5) == 0);
  CHECK_OK(plinth_store_set(store, "nothing", NULL, 0));
  CHECK_OK(plinth_store_get(store, "nothing", 1000, NULL, 0, &bytes));
  CHECK_EQ(bytes, 0);
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
  char address[100];
  CHECK_STATUS(plinth_store_create("http://x", &store), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_create("relative/folder", &store), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_create(NULL, &store), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_create("/tmp", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_create("tcp://127.0.0.1:1", &store), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("tcp://127.0.0.1:1");
  CHECK_MESSAGE("plinth_nccl_unique_id by MPI");
  CHECK_SAME(store, UNTOUCHED_POINTER);
  choose_folder();
  snprintf(address, sizeof address, "file://%s", folder);
  CHECK_OK(plinth_store_create(address, &store));
  CHECK_STATUS(plinth_store_set(store, "", "x", 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_set(store, NULL, "x", 1), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_set(store, "x", NULL, 1), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_store_barrier(store, "x", 0, 10), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_barrier(store, "x", 2, 50), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("1 of 2 did not come to the barrier \"x\"");
  CHECK_STATUS(plinth_store_set(store, "huge", "x", SIZE_MAX), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_set(store, "\xff", "x", 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("name is not UTF-8");
  CHECK_STATUS(plinth_store_get(store, "\xfe", 50, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_store_barrier(store, "\xfd", 1, 50), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_store_destroy(store));
  CHECK_STATUS(plinth_store_set(store, "x", "x", 1), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_store_destroy(store), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_store_destroy(NULL));
  remove_folder();
}

TEST(signals_neither_end_nor_extend_a_wait) {
  static char large[1 << 20], copy[1 << 20];
  size_t bytes = 0;
  choose_folder();
  plinth_store_t store = open_store();
  memset(large, 7, sizeof large);
  install_handler();
  interrupt_every(HARNESS_SANITIZED ? 5000 : 500);
  const double start = seconds_now();
  CHECK_STATUS(plinth_store_get(store, "absent", 300, copy, sizeof copy, &bytes), PLINTH_ERROR_TIMED_OUT);
  CHECK(seconds_now() - start >= 0.3 && seconds_now() - start < 5);
  CHECK_STATUS(plinth_store_barrier(store, "absent", 2, 100), PLINTH_ERROR_TIMED_OUT);
  CHECK_OK(plinth_store_set(store, "large", large, sizeof large));
  CHECK_OK(plinth_store_get(store, "large", 1000, copy, sizeof copy, &bytes));
  interrupt_every(0);
  signal(SIGALRM, SIG_DFL);
  CHECK(bytes == sizeof large && memcmp(large, copy, sizeof large) == 0);
  CHECK(signals > 10);
  CHECK_OK(plinth_store_destroy(store));
  remove_folder();
}

static void rendezvous(int rank) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE], first[PLINTH_UNIQUE_ID_SIZE];
  char name[16];
  plinth_store_t store = open_store();
  CHECK_OK(plinth_store_unique_id(store, "first", rank, processes.count, 20000, id));
  snprintf(name, sizeof name, "rank %d", rank);
  CHECK_OK(plinth_store_set(store, name, id, sizeof id));
  CHECK_OK(plinth_store_barrier(store, "first", processes.count, 20000));
  CHECK_OK(plinth_store_get(store, "rank 0", 0, first, sizeof first, NULL));
  CHECK(memcmp(id, first, sizeof id) == 0);
  /* The id of an earlier run is refused. */
  CHECK_STATUS(plinth_store_unique_id(store, "first", rank, processes.count, 20000, id), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_store_destroy(store));
}

TEST(processes_rendezvous_in_a_folder) {
  choose_folder();
  run_processes(4, rendezvous);
  remove_folder();
}

/* A process is killed while it writes values. What others read is complete. */
static void write_values(int rank) {
  static char value[1 << 20];
  char name[16];
  size_t bytes = 0;
  plinth_store_t store = open_store();
  for (int number = 0; number < 20; number++) {
    snprintf(name, sizeof name, "%d", number);
    memset(value, number, sizeof value);
    if (rank == 0) {
      CHECK_OK(plinth_store_set(store, name, value, sizeof value));
    } else if (number < 5) {
      CHECK_OK(plinth_store_get(store, name, 20000, value, sizeof value, &bytes));
    } else if (number == 5) {
      CHECK_EQ(kill(processes.pids[0], SIGKILL), 0);
    } else if (plinth_store_get(store, name, 50, value, sizeof value, &bytes) == PLINTH_ERROR_TIMED_OUT) {
      break;
    }
    CHECK(rank == 0 || number == 5 || (bytes == sizeof value && value[0] == number && value[bytes - 1] == number));
  }
  if (rank == 0) {
    /* It may have written everything before it is killed. */
    sleep(30);
  }
  CHECK_OK(plinth_store_destroy(store));
}

TEST(a_killed_writer_leaves_no_half_value) {
  int status = 0;
  choose_folder();
  start_processes(2, write_values);
  for (int rank = 0; rank < 2; rank++) {
    CHECK(waitpid(processes.pids[rank], &status, 0) == processes.pids[rank]);
    CHECK(rank == 0 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                    : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  remove_folder();
}
