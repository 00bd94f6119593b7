// What every kernel has without an #include, as with NVRTC. The compiler of the host device reads this first.
#pragma once

#include "qualifiers.h"
#include "vector_types.h"
#include "integer.h"
#include "math.h"
#include "execution.h"
#include "checks.h"
#include "warp.h"
#include "atomic.h"
#include "small_float.h"
#include "unsupported.h"
#include "entry.h"
#include "../assert.h"
#include "undeclared.h"

// Instructions of a GPU in the source of a kernel are an error that names them.
#define asm inline_PTX_is_not_supported_on_the_host_device
