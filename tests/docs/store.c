// compiled only: the folder is on a file system of several machines; c_tests/store.c runs such programs
#include "page.h"

void start(int rank, int ranks, int device) {
  plinth_communicator_t communicator;
  plinth_store_t store;
  uint8_t id[128];
#include "store.1.inc"
}

int main(void) {}
