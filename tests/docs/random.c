#include "page.h"

int main(void) {
  page_begin();
  void *memory = page_memory(1024 * 768 * 4);
  plinth_stream_t stream = NULL;
#include "random.1.inc"
  plinth_synchronize(0);
}
