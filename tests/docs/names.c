#include "page.h"

int main(void) {
  page_begin();
  plinth_stream_t stream;
  plinth_stream_create(0, 0, &stream);
  void *weights = page_memory(4096);
#include "names.1.inc"
}
