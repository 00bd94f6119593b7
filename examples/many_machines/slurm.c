// Ranks that Slurm starts, on any number of machines: rank 0 creates the unique id, and a folder that all machines have
// mounted passes it to the others.
//
//   gcc slurm.c -o slurm -lplinth
//   srun --nodes=2 --ntasks-per-node=8 ./slurm /shared
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20 };

static float numbers[COUNT];

static void must(plinth_status_t status) {
  if (status != PLINTH_OK) {
    fprintf(stderr, "%s\n", plinth_last_error());
    exit(1);
  }
}

// A variable that Slurm sets for each task.
static const char *of_slurm(const char *name) {
  const char *value = getenv(name);
  if (value == NULL) {
    fprintf(stderr, "%s is not set: start this program with srun\n", name);
    exit(1);
  }
  return value;
}

int main(int argc, char **argv) {
  const DLDataType float32 = {2, 32, 1};
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const int rank = atoi(of_slurm("SLURM_PROCID"));
  const int ranks = atoi(of_slurm("SLURM_NTASKS"));

  // Each rank of a machine has a device of its own.
  int32_t devices;
  must(plinth_init()); // an error if there is no device
  must(plinth_device_count(&devices));
  const int32_t device = atoi(of_slurm("SLURM_LOCALID")) % devices;
  must(plinth_set_device(device));

  // A folder for this run. A job that Slurm starts again has the same number, and another count of restarts.
  char folder[4096];
  const char *restarts = getenv("SLURM_RESTART_COUNT");
  snprintf(folder, sizeof folder, "%s/plinth-%s.%s.%s", argv[1], of_slurm("SLURM_JOB_ID"), of_slurm("SLURM_STEP_ID"),
           restarts != NULL ? restarts : "0");
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_store_t store;
  plinth_communicator_t communicator;
  must(plinth_store_create(folder, &store));
  must(plinth_store_unique_id(store, "all ranks", rank, ranks, 60000, id));
  must(plinth_store_destroy(store));
  must(plinth_communicator_init_rank(ranks, id, rank, device, NULL, &communicator));

  void *memory;
  for (int i = 0; i < COUNT; i++) numbers[i] = (float)(rank + 1);
  must(plinth_caching_allocator_alloc(sizeof numbers, device, NULL, &memory));
  must(plinth_memcpy(memory, numbers, sizeof numbers, NULL));
  must(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, float32, PLINTH_REDUCE_SUM, NULL));
  must(plinth_communicator_wait(communicator, 60000, NULL));
  must(plinth_memcpy(numbers, memory, sizeof numbers, NULL));
  must(plinth_synchronize(device));

  const float sum = (float)ranks * (float)(ranks + 1) / 2;
  const int is_right = numbers[0] == sum && numbers[COUNT - 1] == sum;
  uint32_t engine;
  must(plinth_communicator_engine(communicator, &engine));
  printf("rank %d of %d, device %d, engine %s: the sum is %g, %s\n", rank, ranks, (int)device,
         engine == PLINTH_ENGINE_NCCL ? "nccl" : "plinth", numbers[0], is_right ? "as expected" : "which is wrong");

  must(plinth_caching_allocator_delete(memory));
  must(plinth_communicator_destroy(communicator));
  return !is_right;
}
