/*! An initializer for a plinth_host_launch_t: one block of one thread, without parameters. */
#define PLINTH_HOST_LAUNCH_INIT {sizeof(plinth_host_launch_t), {1, 1, 1}, {1, 1, 1}, 0, 0, NULL, 0}
