#include "page.h"

int main(void) {
  page_begin();
  void *memory = page_memory(64 * 768 * 2), *zeros = page_memory(768 * 4), *file = calloc(64 * 768, 4);
  plinth_memset(zeros, 0, 768 * 4, NULL);
#include "copy.1.inc"
  plinth_synchronize(0);
  free(file);
}
