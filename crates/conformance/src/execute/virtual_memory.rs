//! Virtual memory: reserved addresses, physical memory, mappings and access.

use super::{
    super::{
        answer::Answer,
        program::{Kind, Step},
    },
    state::{Reservation, State, call, set},
};
use std::{ffi::c_void, ptr};

/// CUDA's structures with plain integers, since programs pass wrong numbers, too.
#[repr(C)]
pub struct Location {
    kind: u32,
    id: i32,
}

#[repr(C)]
pub struct Properties {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32: *mut c_void,
    flags: [u8; 8],
}

#[repr(C)]
pub struct Access {
    location: Location,
    flags: u32,
}

const _: () = assert!(size_of::<Properties>() == size_of::<plinth_driver::types::CUmemAllocationProp>());
const _: () = assert!(size_of::<Access>() == size_of::<plinth_driver::types::CUmemAccessDesc>());

/// Returns the properties of physical memory of one of the kinds that programs create.
pub fn properties(kind: u32) -> Properties {
    let mut properties = Properties {
        kind: 1,
        handle_types: 0,
        location: Location { kind: 1, id: 0 },
        win32: ptr::null_mut(),
        flags: [0; 8],
    };
    match kind {
        1 => properties.handle_types = 1,
        2 => properties.handle_types = 2,
        3 => properties.kind = 0,
        4 => properties.location.kind = 0,
        5 => properties.location.id = 9,
        6 => properties.location.id = -1,
        _ => {}
    }
    properties
}

/// Returns the description of a device's access.
pub fn access(device: i32, flags: u32) -> Access {
    Access { location: Location { kind: 1, id: device }, flags }
}

fn bytes(kib: u32) -> usize {
    kib as usize * 1024
}

impl State {
    fn reservation(&self, argument: u32) -> Option<&Reservation> {
        self.reservations.get(argument.checked_sub(1)? as usize).filter(|one| one.address != 0)
    }

    fn handle(&self, argument: u32) -> Option<u64> {
        self.handles.get(argument.checked_sub(1)? as usize).copied().filter(|handle| *handle != 0)
    }

    fn new_handle(&mut self, slot: u32, code: u32, handle: u64) -> Answer {
        set(&mut self.handles, slot, if code == 0 { handle } else { 0 }, || 0);
        Answer::status(code)
    }

    pub fn virtual_step(&mut self, step: &Step) -> Option<Answer> {
        use Kind::*;
        let [first, second, third, fourth, fifth, sixth, ..] = step.arguments;
        Some(match step.kind {
            Reserve => {
                let mut address = 0;
                let code =
                    call!(self, cuMemAddressReserve(&mut address, bytes(second), third as usize, 0, u64::from(fourth)));
                let made = Reservation {
                    address: if code == 0 { address } else { 0 },
                    bytes: bytes(second),
                    maps: Vec::new(),
                };
                set(&mut self.reservations, first, made, Reservation::default);
                Answer::value(code, i32::from(third > 0 && address % u64::from(third.max(1)) != 0))
            }
            AddressFree => {
                let start = self.reservation(first)?.address;
                let code = call!(self, cuMemAddressFree(start + bytes(second) as u64, bytes(third)));
                if code == 0 {
                    self.reservations[first as usize - 1] = Reservation::default();
                }
                Answer::status(code)
            }
            Create => {
                let (properties, mut handle) = (properties(third), 0);
                let code = call!(
                    self,
                    cuMemCreate(&mut handle, bytes(second), (&raw const properties).cast(), u64::from(fourth))
                );
                self.new_handle(first, code, handle)
            }
            Release => {
                let code = call!(self, cuMemRelease(self.handle(first)?));
                if code == 0 {
                    self.handles[first as usize - 1] = 0;
                }
                Answer::status(code)
            }
            Map => {
                let (start, handle) = (self.reservation(first)?.address + bytes(second) as u64, self.handle(fifth)?);
                let code = call!(self, cuMemMap(start, bytes(third), fourth as usize, handle, u64::from(sixth)));
                if code == 0 {
                    self.reservations[first as usize - 1].maps.push((start, bytes(third)));
                }
                Answer::status(code)
            }
            Unmap => {
                let start = self.reservation(first)?.address + bytes(second) as u64;
                let code = call!(self, cuMemUnmap(start, bytes(third)));
                if code == 0 {
                    let end = start + bytes(third) as u64;
                    self.reservations[first as usize - 1].maps.retain(|(at, _)| *at < start || *at >= end);
                }
                Answer::status(code)
            }
            SetAccess => {
                let start = self.reservation(first)?.address + bytes(second) as u64;
                let access = access(fourth as i32, fifth);
                Answer::status(call!(self, cuMemSetAccess(start, bytes(third), (&raw const access).cast(), 1)))
            }
            GetAccess => {
                let start = self.reservation(second)?.address + bytes(third) as u64;
                let (location, mut flags) = (Location { kind: 1, id: first as i32 }, 99);
                let code = call!(self, cuMemGetAccess(&mut flags, (&raw const location).cast(), start));
                Answer::value(code, flags as i32)
            }
            Granularity => {
                let (properties, mut granule) = (properties(first), 0);
                let code =
                    call!(self, cuMemGetAllocationGranularity(&mut granule, (&raw const properties).cast(), second));
                Answer::value(code, granule as i32)
            }
            Export => {
                let mut file = -1;
                let code = call!(
                    self,
                    cuMemExportToShareableHandle((&raw mut file).cast(), self.handle(first)?, second, u64::from(third))
                );
                close(file);
                Answer::status(code)
            }
            Import => {
                let mut file = -1_i32;
                let exported =
                    call!(self, cuMemExportToShareableHandle((&raw mut file).cast(), self.handle(second)?, 1, 0));
                if exported != 0 {
                    return None;
                }
                let mut handle = 0;
                let code = call!(self, cuMemImportFromShareableHandle(&mut handle, file as usize as *mut c_void, 1));
                close(file);
                self.new_handle(first, code, handle)
            }
            RetainHandle => {
                let start = self.reservation(second)?.address + bytes(third) as u64;
                let mut handle = 0;
                let code = call!(self, cuMemRetainAllocationHandle(&mut handle, start as *mut c_void));
                self.new_handle(first, code, handle)
            }
            RangeOfVirtual => {
                let start = self.reservation(first)?.address;
                self.address_range(start + bytes(second) as u64, start)
            }
            AttributeOfVirtual => {
                let start = self.reservation(second)?.address;
                self.attribute(first, start + bytes(third) as u64, start)
            }
            _ => return None,
        })
    }
}

fn close(file: i32) {
    if file >= 0 {
        // SAFETY: the driver created the descriptor for this program, and nothing else uses it.
        unsafe { libc::close(file) };
    }
}
