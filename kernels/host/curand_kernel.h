// Not supported on the host device.
#pragma once
#error "cuRAND is not supported on the host device"
