#include "page.h"

#include <string.h>

#include "compile_kernel.3.inc"

static void run(void) {
  int64_t extent = 1000;
  DLTensor tensor = {page_memory(4000), {2, 0}, 1, {2, 32, 1}, &extent, NULL, 0};
  plinth_normal(&tensor, 0, 1, NULL, NULL);
  plinth_stream_t stream = NULL;
#include "compile_kernel.1.inc"
  plinth_synchronize(0);
}

int main(void) {
  page_begin();
  run();
#include "compile_kernel.4.inc"
}
