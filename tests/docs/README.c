#include "page.h"

int main(void) {
  page_begin();
  void *pinned;
  plinth_host_alloc(4096 * 4096 * sizeof(float), &pinned);
#include "README.1.inc"
  plinth_stream_synchronize(copies);
  const float first = ((const float *)pinned)[0];
  return !(first > -6 && first < 6 && first != 0);
}
