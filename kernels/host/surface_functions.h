// Not supported on the host device.
#pragma once
#error "surfaces are not supported on the host device"
