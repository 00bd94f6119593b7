// compiled only: needs a process for each rank; c_tests/communicator_registered.c runs such programs
#include "page.h"

void register_gradients(plinth_communicator_t communicator, int device, size_t count, plinth_stream_t stream) {
  const DLDataType type = {2, 32, 1};
  const size_t bytes = count * sizeof(float);
  void *gradients;
#include "collectives_processes.1.inc"
}

int main(void) {}
