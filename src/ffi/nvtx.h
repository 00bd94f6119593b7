/*! An initializer for a plinth_nvtx_event_t. */
#define PLINTH_NVTX_EVENT_INIT {sizeof(plinth_nvtx_event_t), NULL, 0, 0, 0, false, false}
