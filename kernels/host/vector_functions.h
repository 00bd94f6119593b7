// The functions that make vectors, under CUDA's name.
#pragma once
#include "plinth_host/vector_types.h"
