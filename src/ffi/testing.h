/*! An initializer for a plinth_host_usage_t. */
#define PLINTH_HOST_USAGE_INIT {sizeof(plinth_host_usage_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
