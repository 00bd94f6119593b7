#include "page.h"

int main(void) {
  page_begin();
  const size_t bytes = 4096;
  void *to = page_memory(bytes), *from = page_memory(bytes);
#include "stream.1.inc"
#include "stream.2.inc"
}
