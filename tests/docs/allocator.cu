#include "page.h"

__global__ void my_kernel(void *memory);
__global__ void reader(const void *memory);

void allocate(size_t bytes, int grid, int block, plinth_stream_t stream) {
#include "allocator.1.inc"
}

void share(void *memory, int grid, int block, plinth_stream_t other, plinth_event_t written) {
#include "allocator.2.inc"
}
