// Gives back the names of types that undeclared.h takes, and offsetof: what the headers of CUDA's C++ library have in NVRTC.
#pragma once
#ifdef PLINTH_HOST_UNDECLARED
#undef int8_t
#undef int16_t
#undef int32_t
#undef int64_t
#undef uint8_t
#undef uint16_t
#undef uint32_t
#undef uint64_t
#undef uintptr_t
#undef uint
#undef ushort
#undef ulong
#pragma pop_macro("offsetof")
#endif
