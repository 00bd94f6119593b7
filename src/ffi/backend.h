/*! An initializer for a plinth_allocator_hooks_t. */
#define PLINTH_ALLOCATOR_HOOKS_INIT {sizeof(plinth_allocator_hooks_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}
