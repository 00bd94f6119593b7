#include "page.h"

int main(void) {
  page_begin();
#include "memory_share.1.inc"
}
