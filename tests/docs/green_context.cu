#include "page.h"

__global__ void kernel(float *data);

void use(float *data, DLTensor tensor, int grid, int block) {
#include "green_context.1.inc"
}
