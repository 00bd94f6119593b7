// compiled only: MPI and the folder are those of several machines; tests/many_machines/run.py runs such programs
#include "page.h"

enum { MPI_BYTE, MPI_COMM_WORLD };

static int MPI_Bcast(void *buffer, int count, int type, int root, int communicator) {
  return buffer == NULL || count + type + root + communicator < 0;
}

void start_by_mpi(int rank, int ranks, int device) {
  plinth_communicator_t communicator;
  uint8_t id[128];
#include "many_machines.1.inc"
}

void start_by_slurm(int rank, int ranks, int device) {
  plinth_communicator_t communicator;
  plinth_store_t store;
  uint8_t id[128];
#include "many_machines.3.inc"
}

int main(void) {}
