/*! An initializer for a plinth_kernel_launch_t: one block of one thread. */
#define PLINTH_KERNEL_LAUNCH_INIT {sizeof(plinth_kernel_launch_t), {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 0, 0}

/*! An initializer for a plinth_kernel_argument_t. */
#define PLINTH_KERNEL_ARGUMENT_INIT {sizeof(plinth_kernel_argument_t), NULL, 0, 0, 0}
