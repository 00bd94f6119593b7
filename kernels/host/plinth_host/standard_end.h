// The end of what standard_begin.h begins.
#pragma pop_macro("__asm")
#pragma pop_macro("asm")
#pragma pop_macro("__noinline__")
