#include "page.h"
#include <plinth.hpp>

static void launch_matmul(const float *, const float *, float *, std::int64_t, std::int64_t, std::int64_t, plinth_stream_t) {
  fprintf(stderr, "the host device has a CPU version of the kernel\n");
  exit(1);
}

#include "host.1.inc"

int main() {
  page_begin();
  plinth::Tensor<float> a({2, 3}), b({3, 2}), c({2, 2});
  const float left[] = {1, 2, 3, 4, 5, 6}, right[] = {1, 0, 0, 1, 1, 1}, expected[] = {4, 5, 10, 11};
  float product[4] = {};
  const plinth::StreamView stream;
  plinth::memcpy(a.data(), left, sizeof left, stream);
  plinth::memcpy(b.data(), right, sizeof right, stream);
  matmul(a, b, c, stream);
  plinth::memcpy(product, c.data(), sizeof product, stream);
  plinth::synchronize();
  return memcmp(product, expected, sizeof product) != 0;
}
