// Not supported on the host device.
#pragma once
#error "textures are not supported on the host device"
