// env: PLINTH_HOST_DEVICES=3
#include "page.h"

int main(void) {
  page_begin();
  int64_t shape[] = {1000};
  DLTensor tensor = {page_memory(4000), {2, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  plinth_uniform(&tensor, 0, 1, NULL, NULL);
  enum { kDLCUDA = 2 };
#include "collectives.1.inc"
  if (shapes[0][0] != 1000) return 1;
  plinth_caching_allocator_delete(copies[1].data);
  plinth_caching_allocator_delete(tensor.data);
}
