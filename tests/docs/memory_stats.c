#include "page.h"

int main(void) {
  page_begin();
#include "memory_stats.1.inc"
}
