#include "page.h"

static int runs;

static void my_program_under_test(void) {
  void *memory = NULL;
  runs++;
  if (plinth_caching_allocator_alloc(1 << 20, 0, NULL, &memory) == PLINTH_OK) plinth_caching_allocator_delete(memory);
  plinth_empty_cache();
}

int main(void) {
#include "errors.1.inc"
  return runs < 3;
}
