#include "page.h"

int main(void) {
  page_begin();
#include "nvtx.1.inc"
}
