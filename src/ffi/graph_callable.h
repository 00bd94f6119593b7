/*! An initializer for a plinth_callable_t. */
#define PLINTH_CALLABLE_INIT {sizeof(plinth_callable_t), NULL, NULL, NULL, NULL, 0, NULL, 0, NULL}
