/* Events shared between two processes. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: a_stream_of_another_process_waits_for_an_event another_process_records_an_event; sets the environment */
/* alone: another_process_waits_for_an_event; sets the environment */
/* alone: another_process_waits_for_an_event_of_another_device; sets the environment */
#include "driver.h"
#include "support.h"

#include <fcntl.h>
#include <sys/wait.h>

/* Environment variables that pass the event's handle and device to the other process. */
#define HANDLE_VARIABLE "PLINTH_TEST_EVENT"
#define DEVICE_VARIABLE "PLINTH_TEST_DEVICE"

/* File descriptors of the pipes between the two processes. */
enum { WRITE_END = 60, READ_END = 61 };

static void send_byte(char byte) { CHECK_EQ(write(WRITE_END, &byte, 1), 1); }

static void expect_byte(char byte) {
  char received = 0;
  CHECK_EQ(read(READ_END, &received, 1), 1);
  CHECK_EQ(received, byte);
}

static int32_t event_device(void) { return atoi(getenv(DEVICE_VARIABLE)); }

static plinth_event_t open_event(void) {
  const char *digits = getenv(HANDLE_VARIABLE);
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_event_t event = NULL;
  for (int index = 0; index < PLINTH_IPC_EVENT_HANDLE_SIZE; index++) {
    unsigned byte = 0;
    CHECK_EQ(sscanf(digits + 2 * index, "%2x", &byte), 1);
    ipc_handle[index] = (uint8_t)byte;
  }
  CHECK_OK(plinth_event_from_ipc_handle(event_device(), ipc_handle, &event));
  return event;
}

/* Starts a helper of this program in a new process. */
static pid_t start(const char *helper, plinth_event_t event, int32_t device) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  char digits[2 * PLINTH_IPC_EVENT_HANDLE_SIZE + 1];
  char number[16];
  int to_child[2];
  int to_parent[2];
  CHECK_OK(plinth_event_ipc_handle(event, ipc_handle));
  for (int index = 0; index < PLINTH_IPC_EVENT_HANDLE_SIZE; index++) {
    snprintf(digits + 2 * index, 3, "%02x", ipc_handle[index]);
  }
  snprintf(number, sizeof number, "%d", (int)device);
  setenv(HANDLE_VARIABLE, digits, 1);
  setenv(DEVICE_VARIABLE, number, 1);
  CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    /* Move the pipes to high numbers first, so that dup2 does not close one of them. */
    const int read_end = fcntl(to_child[0], F_DUPFD, 100);
    const int write_end = fcntl(to_parent[1], F_DUPFD, 100);
    dup2(write_end, WRITE_END);
    dup2(read_end, READ_END);
    execl("/proc/self/exe", "event_ipc", helper, (char *)NULL);
    _exit(126);
  }
  const int write_end = fcntl(to_child[1], F_DUPFD, 100);
  const int read_end = fcntl(to_parent[0], F_DUPFD, 100);
  CHECK(close(to_child[0]) == 0 && close(to_child[1]) == 0);
  CHECK(close(to_parent[0]) == 0 && close(to_parent[1]) == 0);
  /* The library may have open files by now, so check that these numbers are free. */
  CHECK(fcntl(WRITE_END, F_GETFD) == -1 && fcntl(READ_END, F_GETFD) == -1);
  dup2(write_end, WRITE_END);
  dup2(read_end, READ_END);
  return child;
}

static void expect_exit(pid_t child) {
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

HELPER(waits_for_the_event) {
  plinth_event_t event = open_event();
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_event_device(event, &device));
  CHECK_EQ(device, event_device());
  CHECK(!event_done(event));
  send_byte('w');
  CHECK_OK(plinth_event_synchronize(event));
  CHECK(event_done(event));
  CHECK_OK(plinth_event_destroy(event));
}

static void expect_other_process_waits(int32_t device) {
  plinth_stream_t stream = stream_on(device);
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(event, stream));
  const pid_t child = start("waits_for_the_event", event, device);
  expect_byte('w');
  sleep_milliseconds(20);
  CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
  gate_open(held);
  expect_exit(child);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(another_process_waits_for_an_event) { expect_other_process_waits(0); }

TEST(another_process_waits_for_an_event_of_another_device) {
  need_devices(2);
  expect_other_process_waits(1);
}

HELPER(holds_a_stream_behind_the_event) {
  plinth_event_t event = open_event();
  plinth_stream_t stream = stream_on(event_device());
  void *memory = device_memory(KIB, event_device());
  CHECK_OK(plinth_event_wait(event, stream));
  CHECK_OK(plinth_memset(memory, 1, KIB, stream));
  CHECK(stays_undone(stream));
  send_byte('w');
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_stream_of_another_process_waits_for_an_event) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(event, stream));
  const pid_t child = start("holds_a_stream_behind_the_event", event, 0);
  expect_byte('w');
  CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
  gate_open(held);
  expect_exit(child);
  CHECK_OK(plinth_event_destroy(event));
}

HELPER(records_the_event) {
  plinth_event_t event = open_event();
  plinth_stream_t stream = stream_on(event_device());
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(event, stream));
  send_byte('r');
  expect_byte('o');
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  send_byte('d');
  expect_byte('e');
  CHECK_OK(plinth_event_destroy(event));
}

TEST(another_process_records_an_event) {
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  const pid_t child = start("records_the_event", event, 0);
  expect_byte('r');
  CHECK(!event_done(event));
  send_byte('o');
  expect_byte('d');
  EVENTUALLY(event_done(event));
  CHECK_OK(plinth_event_synchronize(event));
  send_byte('e');
  expect_exit(child);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(exporting_a_handle_creates_the_event_on_the_current_device) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  int32_t device = UNTOUCHED;
  const int32_t last = device_count() - 1;
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  CHECK_OK(plinth_set_device(last));
  CHECK_OK(plinth_event_ipc_handle(event, ipc_handle));
  CHECK_OK(plinth_event_device(event, &device));
  CHECK_EQ(device, last);
  CHECK(event_done(event));
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_handle_is_exported_while_another_device_is_current) {
  if (device_count() < 2) {
    SKIP("needs two devices");
  }
  uint8_t first[PLINTH_IPC_EVENT_HANDLE_SIZE], second[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_event_ipc_handle(event, first));
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_event_ipc_handle(event, second));
  CHECK(memcmp(first, second, sizeof first) == 0);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(only_interprocess_events_have_a_handle) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE] = {7};
  plinth_event_t event = new_event(PLINTH_EVENT_BLOCKING);
  CHECK_STATUS(plinth_event_ipc_handle(event, ipc_handle), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("PLINTH_EVENT_INTERPROCESS");
  CHECK_EQ(ipc_handle[0], 7);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(a_process_cannot_open_its_own_event) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  plinth_event_t opened = (plinth_event_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_event_ipc_handle(event, ipc_handle));
  CHECK_STATUS(plinth_event_from_ipc_handle(0, ipc_handle, &opened), PLINTH_ERROR_DRIVER);
  CHECK(plinth_last_driver_error() != 0);
  CHECK_SAME(opened, UNTOUCHED_POINTER);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(invalid_handles_are_refused) {
  uint8_t bytes[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_event_t opened = (plinth_event_t)UNTOUCHED_POINTER;
  memset(bytes, 0, sizeof bytes);
  CHECK_STATUS(plinth_event_from_ipc_handle(0, bytes, &opened), PLINTH_ERROR_INVALID_VALUE);
  pattern_fill(bytes, sizeof bytes, 3);
  CHECK_STATUS(plinth_event_from_ipc_handle(0, bytes, &opened), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_event_from_ipc_handle(0, NULL, &opened), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_from_ipc_handle(0, bytes, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(opened, UNTOUCHED_POINTER);
}
