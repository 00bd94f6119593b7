// compiled only: the host device has no kernels of CUDA C++; tests/nvrtc.rs and c_tests/compile_kernel.c compile such source
#include "page.h"

int main(void) {
  DLTensor tensor = {0};
  plinth_stream_t stream = NULL;
#include "compile_kernel.1.inc"
}
