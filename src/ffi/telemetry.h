/*! An initializer for a plinth_telemetry_t. */
#define PLINTH_TELEMETRY_INIT {sizeof(plinth_telemetry_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/*! An initializer for a plinth_gpu_process_t. */
#define PLINTH_GPU_PROCESS_INIT {sizeof(plinth_gpu_process_t), 0, 0, 0}
