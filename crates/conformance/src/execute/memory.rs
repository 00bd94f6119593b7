//! Allocations, pinned memory, pools, pointer attributes, and handles for other processes.

use super::{
    super::{
        answer::Answer,
        program::{Kind, Step},
    },
    state::{Memory, State, call, set},
};
use plinth_driver::types::*;
use std::{
    ffi::{c_uint, c_void},
    ptr,
};

impl State {
    /// Returns the address that an argument names.
    fn address(&self, argument: u32) -> Option<u64> {
        Some(match argument {
            0 => 0,
            1 => self.arena,
            2 => self.pinned,
            3 => self.pageable,
            number => match *self.memory.get(number as usize - 4)? {
                Memory::Device(address) | Memory::Pinned(address) => address,
                Memory::None => return None,
            },
        })
    }

    fn allocated(&mut self, slot: u32, code: c_uint, memory: Memory) -> Answer {
        let memory = if code == 0 { memory } else { Memory::None };
        set(&mut self.memory, slot, memory, || Memory::None);
        Answer::status(code)
    }

    fn freed(&mut self, argument: u32, code: c_uint) -> Answer {
        if let Some(one) = argument.checked_sub(4).and_then(|index| self.memory.get_mut(index as usize))
            && code == 0
        {
            *one = Memory::None;
        }
        Answer::status(code)
    }

    pub fn memory_step(&mut self, step: &Step) -> Option<Answer> {
        use Kind::*;
        let [first, second, third, ..] = step.arguments;
        let pool = self.pool as CUmemoryPool;
        Some(match step.kind {
            MemInfo => {
                let (mut free, mut total) = (0, 0);
                Answer::status(call!(self, cuMemGetInfo_v2(&mut free, &mut total)))
            }
            MemAlloc => {
                let mut address = 0;
                let code = call!(self, cuMemAlloc_v2(&mut address, second as usize));
                self.allocated(first, code, Memory::Device(address))
            }
            ManagedAlloc => {
                let mut address = 0;
                let code = call!(self, cuMemAllocManaged(&mut address, second as usize, third));
                self.allocated(first, code, Memory::Device(address))
            }
            HostAlloc => {
                let mut address = ptr::null_mut();
                let code = call!(self, cuMemHostAlloc(&mut address, second as usize, third));
                self.allocated(first, code, Memory::Pinned(address as u64))
            }
            AllocAsync => {
                let stream = self.stream(third)?;
                if self.may_capture(stream) {
                    return None;
                }
                let mut address = 0;
                let code = call!(self, cuMemAllocAsync(&mut address, second as usize, stream));
                self.allocated(first, code, Memory::Device(address))
            }
            FreeAsync => {
                let (address, stream) = (self.address(first)?, self.stream(second)?);
                if self.may_capture(stream) {
                    return None;
                }
                let code = call!(self, cuMemFreeAsync(address, stream));
                self.freed(first, code)
            }
            MemFree => {
                let code = call!(self, cuMemFree_v2(self.address(first)?));
                self.freed(first, code)
            }
            HostFree => {
                let code = call!(self, cuMemFreeHost(self.address(first)? as *mut c_void));
                self.freed(first, code)
            }
            AddressRange => {
                let address = self.address(first)?;
                self.address_range(address + u64::from(second), address)
            }
            HostRegister => {
                let page = self.page(first);
                let code = call!(self, cuMemHostRegister_v2(page as *mut c_void, second as usize * 4096, third));
                if code == 0 {
                    self.registered.push(page);
                }
                Answer::status(code)
            }
            HostUnregister => {
                let page = self.page(first);
                let code = call!(self, cuMemHostUnregister(page as *mut c_void));
                if code == 0 {
                    self.registered.retain(|one| *one != page);
                }
                Answer::status(code)
            }
            PointerAttribute => {
                let address = self.address(second)?;
                self.attribute(first, address + u64::from(third), address)
            }
            PointerAttributes => {
                let mut kinds = [
                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                    CU_POINTER_ATTRIBUTE_MAPPED,
                ];
                let mut values = [0_u64; 4];
                let mut outputs = values.each_mut().map(|value| (value as *mut u64).cast::<c_void>());
                let address = self.address(first)? + u64::from(second);
                let code = call!(self, cuPointerGetAttributes(4, kinds.as_mut_ptr(), outputs.as_mut_ptr(), address));
                let [kind, ordinal, managed, mapped] = values;
                Answer::with(code, [kind as i32, ordinal as i32, ((managed & 0xff) | (mapped & 0xff) << 8) as i32])
            }
            IpcGetMem => Answer::status(self.memory_handle(self.address(first)?).0),
            IpcOpenMem => {
                let (code, handle) = self.memory_handle(self.address(first)?);
                if code != 0 {
                    return None;
                }
                let mut address = 0;
                let code = call!(self, cuIpcOpenMemHandle_v2(&mut address, handle, second));
                if code == 0 {
                    call!(self, cuIpcCloseMemHandle(address));
                }
                Answer::status(code)
            }
            IpcCloseMem => Answer::status(call!(self, cuIpcCloseMemHandle(self.address(first)?))),
            DefaultPool => {
                let mut pool = ptr::null_mut();
                let code = call!(self, cuDeviceGetDefaultMemPool(&mut pool, first as i32));
                Answer::value(code, i32::from(pool as usize == self.pool))
            }
            PoolGet => {
                let mut value = 0_u64;
                let code = call!(self, cuMemPoolGetAttribute(pool, first, (&raw mut value).cast()));
                Answer::value(code, value as i32)
            }
            PoolSet => {
                let mut value = u64::from(second);
                self.pool_changed = true;
                Answer::status(call!(self, cuMemPoolSetAttribute(pool, first, (&raw mut value).cast())))
            }
            PoolTrim => Answer::status(call!(self, cuMemPoolTrimTo(pool, first as usize))),
            PoolAccess => {
                let access = super::virtual_memory::access(first as i32, second);
                Answer::status(call!(self, cuMemPoolSetAccess(pool, (&raw const access).cast(), 1)))
            }
            _ => return None,
        })
    }

    fn memory_handle(&self, address: u64) -> (c_uint, CUipcMemHandle) {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        (call!(self, cuIpcGetMemHandle(&mut handle, address)), handle)
    }

    /// Asks for the range that an address is in, relative to `start`.
    pub fn address_range(&self, address: u64, start: u64) -> Answer {
        let (mut base, mut bytes) = (0, 0);
        let code = call!(self, cuMemGetAddressRange_v2(&mut base, &mut bytes, address));
        Answer::with(code, [(start.wrapping_sub(base)) as i32, bytes as i32, 0])
    }

    /// Asks for an attribute of an address within memory that begins at `start`.
    pub fn attribute(&self, kind: u32, address: u64, start: u64) -> Answer {
        let mut value = 0_u64;
        let code = call!(self, cuPointerGetAttribute((&raw mut value).cast(), kind, address));
        let shown = match kind {
            CU_POINTER_ATTRIBUTE_CONTEXT => i32::from(value as usize == self.context) + 2 * i32::from(value == 0),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER | CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                i32::from(value == address) + 2 * i32::from(value == 0)
            }
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => value.wrapping_sub(start) as i32,
            CU_POINTER_ATTRIBUTE_BUFFER_ID => i32::from(value != 0),
            CU_POINTER_ATTRIBUTE_IS_MANAGED | CU_POINTER_ATTRIBUTE_MAPPED => (value & 0xff) as i32,
            _ => value as i32,
        };
        Answer::value(code, shown)
    }
}
