#include "page.h"

int main(void) {
  page_begin();
  int64_t shape[] = {4096, 1024};
  DLTensor x = {page_memory(4096 * 1024 * 2), {2, 0}, 2, {2, 16, 1}, shape, NULL, 0}, y = x;
  DLTensor bias = {page_memory(1024 * 2), {2, 0}, 1, {2, 16, 1}, shape + 1, NULL, 0};
  y.data = page_memory(4096 * 1024 * 2);
  plinth_normal(&x, 0, 1, NULL, NULL);
  plinth_normal(&bias, 0, 1, NULL, NULL);
  plinth_stream_t stream = NULL;
#include "jiterator.1.inc"
  plinth_synchronize(0);
}
