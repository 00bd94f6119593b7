/*! An initializer for a plinth_jit_scalar_t. */
#define PLINTH_JIT_SCALAR_INIT {sizeof(plinth_jit_scalar_t), NULL, 0, 0, 0, 0.0, 0.0}
