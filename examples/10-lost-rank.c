/*
 * Going on without a rank: processes that add numbers in steps, one of which is lost. The program that starts them is their
 * monitor, as a launcher is: it tells the others which rank is gone, and they go on in a communicator of the ranks that remain.
 *
 *   gcc -std=c11 -D_GNU_SOURCE 10-lost-rank.c -lplinth && PLINTH_DEVICE=host ./a.out
 *
 * Each rank needs a device of its own: PLINTH_HOST_DEVICES=3 gives the host device three, and ./a.out 2 starts two ranks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <plinth.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8, STEPS = 4, LOST_IN_STEP = 2, COUNT = 1000 };

static const DLDataType FLOAT32 = {2, 32, 1};

/* A pipe to each rank: its id first, and then the rank that was lost. */
static int pipes[MOST][2];

static void check(plinth_status_t status) {
  if (status == PLINTH_OK) return;
  fprintf(stderr, "%s: %s\n", plinth_status_string(status), plinth_last_error());
  exit(1);
}

static void receive(int rank, void *bytes, size_t size) {
  if (read(pipes[rank][0], bytes, size) != (ssize_t)size) exit(1);
}

static void tell(int rank, const void *bytes, size_t size) {
  if (write(pipes[rank][1], bytes, size) != (ssize_t)size) exit(1);
}

/* Adds the numbers of all ranks, and waits for the sum. */
static plinth_status_t add(plinth_communicator_t communicator, void *numbers) {
  const plinth_status_t status =
      plinth_communicator_all_reduce(communicator, numbers, numbers, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL);
  return status != PLINTH_OK ? status : plinth_communicator_wait(communicator, 0, NULL);
}

static void work(int rank, int ranks) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t communicator = NULL;
  plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  options.timeout_milliseconds = 20000;
  int32_t devices = 0;
  check(plinth_device_count(&devices));
  if (devices < ranks) {
    if (rank == 0) printf("%d ranks need as many devices, and there are %d\n", ranks, devices);
    return;
  }
  if (rank == 0) {
    check(plinth_nccl_unique_id(id));
    for (int other = 1; other < ranks; other++) tell(other, id, sizeof id);
  } else {
    receive(rank, id, sizeof id);
  }
  check(plinth_set_device(rank));
  check(plinth_communicator_init_rank(ranks, id, rank, rank, &options, &communicator));
  void *numbers = NULL;
  check(plinth_caching_allocator_alloc(COUNT * sizeof(float), rank, NULL, &numbers));
  for (int step = 1; step <= STEPS; step++) {
    const float one = 1;
    float sum = 0;
    if (rank == ranks - 1 && step == LOST_IN_STEP) _exit(0);
    check(plinth_memset_pattern(numbers, &one, sizeof one, COUNT * sizeof one, NULL));
    plinth_status_t status = add(communicator, numbers);
    if (status != PLINTH_OK) {
      int32_t lost = -1;
      plinth_communicator_t rest = NULL;
      printf("rank %d, step %d: %s\n", rank, step, plinth_last_error());
      receive(rank, &lost, sizeof lost);
      check(plinth_communicator_shrink(communicator, &lost, 1, PLINTH_SHRINK_ABORT, &rest));
      check(plinth_communicator_destroy(communicator));
      communicator = rest;
      step--; /* It is repeated, because the numbers are undefined after an error. */
      continue;
    }
    check(plinth_copy(&sum, numbers, sizeof sum, false));
    printf("rank %d, step %d: the sum is %g\n", rank, step, (double)sum);
    fflush(stdout);
  }
  check(plinth_caching_allocator_delete(numbers));
  check(plinth_communicator_destroy(communicator));
}

int main(int count, char **arguments) {
  const int ranks = count > 1 ? atoi(arguments[1]) : 2;
  pid_t processes[MOST];
  if (ranks < 2 || ranks > MOST) return 2;
  for (int rank = 0; rank < ranks; rank++) {
    if (pipe(pipes[rank]) != 0) return 1;
  }
  /* Processes are made before the first use of a device. */
  for (int rank = 0; rank < ranks; rank++) {
    processes[rank] = fork();
    if (processes[rank] == 0) {
      work(rank, ranks);
      return 0;
    }
  }
  const int32_t lost = ranks - 1;
  int failures = 0, status = 0;
  waitpid(processes[lost], &status, 0);
  for (int rank = 0; rank < lost; rank++) tell(rank, &lost, sizeof lost);
  for (int rank = 0; rank < lost; rank++) {
    waitpid(processes[rank], &status, 0);
    failures += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  return failures;
}
