/*! An initializer for a plinth_device_properties_t. */
#define PLINTH_DEVICE_PROPERTIES_INIT {sizeof(plinth_device_properties_t), {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
