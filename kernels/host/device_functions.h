// The integer intrinsics and those with a rounding mode, under CUDA's name.
#pragma once
#include "plinth_host/integer.h"
#include "plinth_host/math.h"
