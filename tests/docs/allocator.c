#include "page.h"

int main(void) {
  page_begin();
#include "allocator.3.inc"
}
