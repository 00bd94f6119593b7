//! The host device's calls: one function for each line of the driver table.
#![allow(non_snake_case)]

use crate::driver::{codes, table::Code, types::*};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

pub unsafe extern "C" fn cuInit(_flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDriverGetVersion(_version: *mut c_int) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGetErrorName(_code: Code, _name: *mut *const c_char) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGetErrorString(_code: Code, _text: *mut *const c_char) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceGetCount(_count: *mut c_int) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceGet(_device: *mut CUdevice, _ordinal: c_int) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceGetName(_name: *mut c_char, _capacity: c_int, _device: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceTotalMem_v2(_bytes: *mut usize, _device: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceGetAttribute(_value: *mut c_int, _attribute: c_uint, _device: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceGetPCIBusId(_text: *mut c_char, _capacity: c_int, _device: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceGetUuid_v2(_uuid: *mut CUuuid, _device: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDeviceCanAccessPeer(_can_access: *mut c_int, _device: CUdevice, _peer: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(_context: *mut CUcontext, _device: CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    _device: CUdevice,
    _flags: *mut c_uint,
    _active: *mut c_int,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxGetCurrent(_context: *mut CUcontext) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxSetCurrent(_context: CUcontext) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxGetDevice(_device: *mut CUdevice) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxSynchronize() -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(_least: *mut c_int, _greatest: *mut c_int) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxEnablePeerAccess(_peer: CUcontext, _flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuCtxDisablePeerAccess(_peer: CUcontext) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemGetInfo_v2(_free: *mut usize, _total: *mut usize) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemAlloc_v2(_pointer: *mut CUdeviceptr, _bytes: usize) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemFree_v2(_pointer: CUdeviceptr) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    _base: *mut CUdeviceptr,
    _bytes: *mut usize,
    _pointer: CUdeviceptr,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemHostAlloc(_pointer: *mut *mut c_void, _bytes: usize, _flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemFreeHost(_pointer: *mut c_void) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemHostRegister_v2(_pointer: *mut c_void, _bytes: usize, _flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemHostUnregister(_pointer: *mut c_void) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuPointerGetAttribute(_data: *mut c_void, _attribute: c_uint, _pointer: CUdeviceptr) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuPointerGetAttributes(
    _count: c_uint,
    _attributes: *mut c_uint,
    _data: *mut *mut c_void,
    _pointer: CUdeviceptr,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemAddressReserve(
    _pointer: *mut CUdeviceptr,
    _bytes: usize,
    _alignment: usize,
    _wanted: CUdeviceptr,
    _flags: c_ulonglong,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemAddressFree(_pointer: CUdeviceptr, _bytes: usize) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemCreate(
    _handle: *mut CUmemGenericAllocationHandle,
    _bytes: usize,
    _properties: *const CUmemAllocationProp,
    _flags: c_ulonglong,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemRelease(_handle: CUmemGenericAllocationHandle) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemMap(
    _pointer: CUdeviceptr,
    _bytes: usize,
    _offset: usize,
    _handle: CUmemGenericAllocationHandle,
    _flags: c_ulonglong,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemUnmap(_pointer: CUdeviceptr, _bytes: usize) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemSetAccess(
    _pointer: CUdeviceptr,
    _bytes: usize,
    _access: *const CUmemAccessDesc,
    _count: usize,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemGetAccess(
    _flags: *mut c_ulonglong,
    _location: *const CUmemLocation,
    _pointer: CUdeviceptr,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    _bytes: *mut usize,
    _properties: *const CUmemAllocationProp,
    _option: c_uint,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemExportToShareableHandle(
    _shareable: *mut c_void,
    _handle: CUmemGenericAllocationHandle,
    _kind: c_uint,
    _flags: c_ulonglong,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemImportFromShareableHandle(
    _handle: *mut CUmemGenericAllocationHandle,
    _shareable: *mut c_void,
    _kind: c_uint,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemRetainAllocationHandle(
    _handle: *mut CUmemGenericAllocationHandle,
    _pointer: *mut c_void,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuIpcGetMemHandle(_handle: *mut CUipcMemHandle, _pointer: CUdeviceptr) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuIpcOpenMemHandle_v2(
    _pointer: *mut CUdeviceptr,
    _handle: CUipcMemHandle,
    _flags: c_uint,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuIpcCloseMemHandle(_pointer: CUdeviceptr) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuIpcGetEventHandle(_handle: *mut CUipcEventHandle, _event: CUevent) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuIpcOpenEventHandle(_event: *mut CUevent, _handle: CUipcEventHandle) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemcpyAsync(
    _destination: CUdeviceptr,
    _source: CUdeviceptr,
    _bytes: usize,
    _stream: CUstream,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemcpyPeerAsync(
    _destination: CUdeviceptr,
    _destination_context: CUcontext,
    _source: CUdeviceptr,
    _source_context: CUcontext,
    _bytes: usize,
    _stream: CUstream,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemsetD8Async(
    _destination: CUdeviceptr,
    _value: u8,
    _count: usize,
    _stream: CUstream,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemsetD16Async(
    _destination: CUdeviceptr,
    _value: u16,
    _count: usize,
    _stream: CUstream,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuMemsetD32Async(
    _destination: CUdeviceptr,
    _value: c_uint,
    _count: usize,
    _stream: CUstream,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamCreateWithPriority(_stream: *mut CUstream, _flags: c_uint, _priority: c_int) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamDestroy_v2(_stream: CUstream) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamQuery(_stream: CUstream) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamSynchronize(_stream: CUstream) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamWaitEvent(_stream: CUstream, _event: CUevent, _flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamGetPriority(_stream: CUstream, _priority: *mut c_int) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamGetFlags(_stream: CUstream, _flags: *mut c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamGetCtx(_stream: CUstream, _context: *mut CUcontext) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamGetId(_stream: CUstream, _id: *mut c_ulonglong) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuLaunchHostFunc(_stream: CUstream, _function: CUhostFn, _data: *mut c_void) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamIsCapturing(_stream: CUstream, _status: *mut c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamBeginCapture_v2(_stream: CUstream, _mode: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamEndCapture(_stream: CUstream, _graph: *mut CUgraph) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    _stream: CUstream,
    _status: *mut c_uint,
    _id: *mut c_ulonglong,
    _graph: *mut CUgraph,
    _dependencies: *mut *const CUgraphNode,
    _count: *mut usize,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(_mode: *mut c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGraphGetNodes(_graph: CUgraph, _nodes: *mut CUgraphNode, _count: *mut usize) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGraphNodeGetType(_node: CUgraphNode, _kind: *mut c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    _exec: *mut CUgraphExec,
    _graph: CUgraph,
    _flags: c_ulonglong,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGraphLaunch(_exec: CUgraphExec, _stream: CUstream) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGraphExecDestroy(_exec: CUgraphExec) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuGraphDestroy(_graph: CUgraph) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventCreate(_event: *mut CUevent, _flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventDestroy_v2(_event: CUevent) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventRecord(_event: CUevent, _stream: CUstream) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventRecordWithFlags(_event: CUevent, _stream: CUstream, _flags: c_uint) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventQuery(_event: CUevent) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventSynchronize(_event: CUevent) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuEventElapsedTime(_milliseconds: *mut f32, _start: CUevent, _end: CUevent) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuModuleLoadData(_module: *mut CUmodule, _image: *const c_void) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuModuleUnload(_module: CUmodule) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuModuleGetFunction(
    _function: *mut CUfunction,
    _module: CUmodule,
    _name: *const c_char,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}

pub unsafe extern "C" fn cuLaunchKernel(
    _function: CUfunction,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: CUstream,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    codes::CUDA_ERROR_NOT_SUPPORTED
}
