// What a kernel may use without an #include, and the host device does not have: texture fetches and surface accesses. Their
// use is an error of the compiler, which names it.
#pragma once

typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;

#define PLINTH_HOST_UNSUPPORTED(name)                                                                 \
  template <typename T = void, typename... A> inline T name(A &&...) {                                \
    static_assert(sizeof(T *) == 0, #name " is not supported on the host device: it has no textures"); \
  }
PLINTH_HOST_UNSUPPORTED(tex1Dfetch)
PLINTH_HOST_UNSUPPORTED(tex1D)
PLINTH_HOST_UNSUPPORTED(tex1DLod)
PLINTH_HOST_UNSUPPORTED(tex1DLayered)
PLINTH_HOST_UNSUPPORTED(tex2D)
PLINTH_HOST_UNSUPPORTED(tex2DLod)
PLINTH_HOST_UNSUPPORTED(tex2DGrad)
PLINTH_HOST_UNSUPPORTED(tex2DLayered)
PLINTH_HOST_UNSUPPORTED(tex2Dgather)
PLINTH_HOST_UNSUPPORTED(tex3D)
PLINTH_HOST_UNSUPPORTED(tex3DLod)
PLINTH_HOST_UNSUPPORTED(texCubemap)
PLINTH_HOST_UNSUPPORTED(surf1Dread)
PLINTH_HOST_UNSUPPORTED(surf1Dwrite)
PLINTH_HOST_UNSUPPORTED(surf2Dread)
PLINTH_HOST_UNSUPPORTED(surf2Dwrite)
PLINTH_HOST_UNSUPPORTED(surf3Dread)
PLINTH_HOST_UNSUPPORTED(surf3Dwrite)
#undef PLINTH_HOST_UNSUPPORTED
