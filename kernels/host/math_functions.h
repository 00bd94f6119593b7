// The mathematical functions, under CUDA's name.
#pragma once
#include "plinth_host/math.h"
