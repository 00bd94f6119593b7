// The vector types, under CUDA's name.
#pragma once
#include "plinth_host/vector_types.h"
