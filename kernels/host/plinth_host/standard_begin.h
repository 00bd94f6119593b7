// Included before a header of the standard's library, and standard_end.h after it: these words are macros in kernels, and
// the library uses them as what they are in C++.
#pragma push_macro("__noinline__")
#pragma push_macro("asm")
#pragma push_macro("__asm")
#undef __noinline__
#undef asm
#undef __asm
#include "standard_names.h"
// With NVRTC, almost every header of CUDA's C++ library has what these declare.
#include <climits>
#include <cstdint>
