#include "page.h"

#include <unistd.h>

int main(void) {
  page_begin();
#include "registration.1.inc"
  plinth_caching_allocator_delete(buffer);
  plinth_mem_pool_destroy(pool);
}
