#include "page.h"

#include "from_cuda.1.inc"
