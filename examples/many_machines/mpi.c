// Ranks that mpirun starts, on any number of machines: rank 0 creates the unique id, and MPI sends it to the others.
//
//   mpicc mpi.c -o mpi -lplinth
//   mpirun -np 16 --hostfile hosts ./mpi
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <mpi.h>
#include <plinth.h>
#include <stdio.h>

enum { COUNT = 1 << 20 };

static float numbers[COUNT];

static void must(plinth_status_t status) {
  if (status != PLINTH_OK) {
    fprintf(stderr, "%s\n", plinth_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int argc, char **argv) {
  const DLDataType float32 = {2, 32, 1};
  int rank, ranks, local_rank;
  MPI_Comm machine;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local_rank);

  // Each rank of a machine has a device of its own.
  int32_t devices;
  must(plinth_init()); // an error if there is no device
  must(plinth_device_count(&devices));
  const int32_t device = local_rank % devices;
  must(plinth_set_device(device));

  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t communicator;
  if (rank == 0) must(plinth_nccl_unique_id(id));
  MPI_Bcast(id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
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
  MPI_Finalize();
  return !is_right;
}
