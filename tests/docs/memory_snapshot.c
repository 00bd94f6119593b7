#include "page.h"

#include "memory_snapshot.2.inc"

int main(void) {
  page_begin();
#include "memory_snapshot.1.inc"
#include "memory_snapshot.3.inc"
}
