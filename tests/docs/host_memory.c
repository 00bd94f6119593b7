#include "page.h"

static void fill(void *memory, size_t bytes) { memset(memory, 1, bytes); }

int main(void) {
  page_begin();
  const size_t bytes = 4096;
  void *on_the_device = page_memory(bytes);
  plinth_stream_t stream = NULL;
#include "host_memory.1.inc"
}
