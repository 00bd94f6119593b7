/*! An initializer for a plinth_ipc_memory_t. */
#define PLINTH_IPC_MEMORY_INIT {sizeof(plinth_ipc_memory_t), NULL, 0, 0, 0, 0}

/*! An initializer for a plinth_ipc_export_t. */
#define PLINTH_IPC_EXPORT_INIT {sizeof(plinth_ipc_export_t), NULL, 0, NULL, 0}
