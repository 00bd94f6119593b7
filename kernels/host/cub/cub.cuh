// Not supported on the host device.
#pragma once
#error "CUB is not supported on the host device"
