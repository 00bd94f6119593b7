// compiled only: /path/libmine.so stands for a library of the reader
#include "page.h"

int main(void) {
  plinth_pool_id_t pool;
#include "allocator_settings.2.inc"
}
