#include "page.h"

static void train(void) { plinth_caching_allocator_delete(page_memory(1 << 20)); }
static void fill(void *memory, size_t bytes) { memset(memory, 1, bytes); }

#include "how_to.3.inc"

int main(void) {
  page_begin();
#include "how_to.1.inc"
#include "how_to.2.inc"
  const size_t bytes = 1 << 20;
  plinth_stream_t work;
  plinth_stream_create(0, 0, &work);
  void *memory = page_memory(bytes);
#include "how_to.5.inc"
  plinth_synchronize(0);
#include "how_to.10.inc"
  /* The next block shows a call that fails. */
  plinth_set_log_callback(PLINTH_LOG_DEBUG, NULL, NULL);
#include "how_to.6.inc"
}
