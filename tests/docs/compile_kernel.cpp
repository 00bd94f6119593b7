#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
  const char *source = R"(template <typename T> __global__ void scale(T *data, T by, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) data[at] *= by;
  })";
  plinth::Tensor<float> owner({1000});
  DLTensor &tensor = owner;
  plinth::normal(tensor);
  const plinth::StreamView stream;
#include "compile_kernel.2.inc"
  plinth::synchronize();
}
