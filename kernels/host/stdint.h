// The machine's <stdint.h>, with the names of its types given back.
#pragma once
#include "plinth_host/standard_names.h"
#include_next <stdint.h>
