/*! An initializer for a plinth_kernel_attributes_t. */
#define PLINTH_KERNEL_ATTRIBUTES_INIT {sizeof(plinth_kernel_attributes_t), 0, 0, 0, 0, 0, 0, 0, 0}
