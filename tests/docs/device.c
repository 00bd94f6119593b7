#include "page.h"

int main(void) {
  page_begin();
#include "device.1.inc"
}
