// Not supported on the host device.
#pragma once
#error "nvcuda::wmma (tensor cores) is not supported on the host device"
