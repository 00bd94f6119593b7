#include "page.h"

int main(void) {
  page_begin();
#include "memory_sleep.1.inc"
  plinth_stream_t stream;
  plinth_stream_create(0, 0, &stream);
  plinth_mem_pool_set_tag(weights_pool, "layer 0");
  plinth_mem_pool_set_tag(cache_pool, "layer 1");
#include "memory_sleep.2.inc"
  const int32_t device = 0;
  plinth_communicator_t communicator;
  plinth_communicator_init_all(&device, 1, NULL, &communicator);
#include "memory_sleep.3.inc"
  plinth_communicator_destroy(communicator);
  plinth_memory_free_backup(NULL);
  plinth_caching_allocator_delete(weights);
  plinth_caching_allocator_delete(cache);
}
