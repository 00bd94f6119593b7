// Gives back the macros of <math.h> that undeclared.h takes, and that <cuda/std/cmath> has in NVRTC.
#pragma once
#ifdef PLINTH_HOST_UNDECLARED
#pragma pop_macro("NAN")
#pragma pop_macro("INFINITY")
#pragma pop_macro("FP_NAN")
#pragma pop_macro("FP_INFINITE")
#pragma pop_macro("FP_ZERO")
#pragma pop_macro("FP_SUBNORMAL")
#pragma pop_macro("FP_NORMAL")
#endif
