/*! An initializer for a plinth_pointer_attributes_t. */
#define PLINTH_POINTER_ATTRIBUTES_INIT {sizeof(plinth_pointer_attributes_t), 0, 0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, {0, 0}}
