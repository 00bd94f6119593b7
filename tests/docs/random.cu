#include "page.h"
#include <plinth_philox.cuh>

#include "random.2.inc"
