// compiled only: the folder is on a file system of several machines; c_tests/communicator.c runs such programs
#include "page.h"

void reduce_in_one_process(const int32_t *devices, void **from, void **to, size_t count, plinth_stream_t *streams) {
  const DLDataType type = {2, 32, 1};
  plinth_communicator_t ranks[4];
#include "nccl.1.inc"
}

void reduce_between_processes(int rank, int ranks, int device, void *from, void *to, size_t count, plinth_stream_t stream) {
  const DLDataType type = {2, 32, 1};
  plinth_communicator_t communicator;
  plinth_store_t store;
  uint8_t id[128];
#include "nccl.2.inc"
}

plinth_communicator_t go_on_without_a_rank(plinth_communicator_t communicator) {
  plinth_status_t status = PLINTH_OK;
#include "nccl.4.inc"
  return status == PLINTH_OK ? rest : NULL;
}

int main(void) {}
