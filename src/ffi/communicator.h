/*! An initializer for a plinth_communicator_options_t. */
#define PLINTH_COMMUNICATOR_OPTIONS_INIT {sizeof(plinth_communicator_options_t), 0, 0, 0}
