//! Arguments of the calls for memory: allocations, pools, and virtual memory.

use super::{
    super::model::{MemoryKind, Reservation},
    ARGUMENTS, Arguments, Generator, Kind,
};

impl Generator {
    pub(super) fn memory_arguments(&mut self, kind: Kind) -> Option<Arguments> {
        use Kind::*;
        Some(match kind {
            MemAlloc => {
                let bytes = self.mostly(&[1, 512, 1000, 4096, 1 << 20, 3 << 20], &[0]);
                arguments![self.new_memory(MemoryKind::Device, bytes, 0), bytes]
            }
            HostAlloc => {
                let (bytes, flags) =
                    (self.mostly(&[1, 100, 4096, 10_000], &[0]), self.mostly(&[0, 1, 2, 3, 4], &[8, 16]));
                arguments![self.new_memory(MemoryKind::Pinned, bytes, 0), bytes, flags]
            }
            ManagedAlloc => {
                let (bytes, flags) = (self.mostly(&[100, 4096], &[0]), self.mostly(&[1, 2], &[0, 3, 4]));
                arguments![self.new_memory(MemoryKind::Managed, bytes, 0), bytes, flags]
            }
            MemFree => {
                let memory = match self.random.percent(6) {
                    true => 0,
                    false => self.memory(|kind| kind != MemoryKind::Pinned)?,
                };
                self.forget_memory(memory);
                arguments![memory]
            }
            HostFree => {
                let memory = if self.random.percent(6) { 0 } else { self.memory(|kind| kind == MemoryKind::Pinned)? };
                self.forget_memory(memory);
                arguments![memory]
            }
            AddressRange => {
                let memory = self.any_memory();
                arguments![memory, self.offset_in(memory)]
            }
            HostRegister => {
                arguments![self.random.below(4), self.mostly(&[1, 2], &[0]), self.mostly(&[0, 1, 2, 3], &[16, 32])]
            }
            HostUnregister => arguments![self.random.below(4)],
            PointerAttribute => {
                let memory = self.any_memory();
                arguments![self.mostly(&[1, 2, 3, 4, 7, 8, 9, 11, 12, 13], &[0, 99]), memory, self.offset_in(memory)]
            }
            PointerAttributes => {
                let memory = self.any_memory();
                arguments![memory, self.offset_in(memory)]
            }
            IpcGetMem => arguments![self.memory(|kind| matches!(kind, MemoryKind::Device)).unwrap_or(1)],
            IpcOpenMem => {
                let memory = self.memory(|kind| matches!(kind, MemoryKind::Device)).unwrap_or(1);
                arguments![memory, self.mostly(&[1], &[0, 2])]
            }
            IpcCloseMem => arguments![self.memory(|kind| matches!(kind, MemoryKind::Device)).unwrap_or(1)],
            DefaultPool => arguments![self.device()],
            PoolGet => arguments![self.mostly(&[1, 2, 3, 4], &[0, 99])],
            PoolSet => {
                let attribute = self.mostly(&[1, 2, 3, 4], &[0, 5, 6, 7, 8, 99]);
                arguments![attribute, self.random.choose(&[0, 0, 1, 1 << 21])]
            }
            PoolTrim => arguments![self.random.choose(&[0, 1, 1 << 21])],
            PoolAccess => arguments![self.device(), self.random.choose(&[0, 1, 3, 3, 3, 2])],
            AllocAsync => {
                let (bytes, stream) = (self.mostly(&[1, 512, 4096, 1 << 20], &[0]), self.stream());
                arguments![self.new_memory(MemoryKind::Pool, bytes, stream), bytes, stream]
            }
            FreeAsync => {
                let memory = self.memory(|kind| matches!(kind, MemoryKind::Pool | MemoryKind::Device))?;
                let own = self.model.memory[memory as usize - 4].stream;
                let alive = own < 3 || self.model.streams[own as usize - 3].alive;
                let stream = if alive && self.random.percent(70) { own } else { self.stream() };
                self.forget_memory(memory);
                arguments![memory, stream]
            }
            _ => return None,
        })
    }

    fn forget_memory(&mut self, memory: u32) {
        if let Some(one) = memory.checked_sub(4).and_then(|index| self.model.memory.get_mut(index as usize)) {
            one.alive = false;
        }
    }

    pub(super) fn virtual_arguments(&mut self, kind: Kind) -> Option<Arguments> {
        use Kind::*;
        Some(match kind {
            Reserve => {
                let kib = self.mostly(&[2048, 4096, 8192], &[0, 1000, 1024, 3000]);
                let alignment = self.mostly(&[0, 0, 2 << 20, 4 << 20], &[3, 4096, 1 << 16]);
                self.model.reservations.push(Reservation { alive: true, kib });
                arguments![self.model.reservations.len() - 1, kib, alignment, self.mostly(&[0], &[1, 2])]
            }
            AddressFree => {
                let reservation = self.reservation()?;
                let kib = self.model.reservations[reservation as usize - 1].kib;
                if self.random.percent(15) {
                    let (offset, size) = self.range(reservation);
                    if (offset, size) != (0, kib) {
                        return Some(arguments![reservation, offset, size]);
                    }
                }
                self.model.reservations[reservation as usize - 1].alive = false;
                arguments![reservation, 0, kib]
            }
            Create => {
                let kib = self.mostly(&[2048, 2048, 2048, 4096], &[0, 64, 1024, 3072]);
                let (kind, flags) = (self.mostly(&[0, 0, 1], &[2, 3, 4, 5, 6]), self.mostly(&[0], &[1]));
                arguments![self.new_handle(), kib, kind, flags]
            }
            Release => {
                let handle = self.handle()?;
                self.model.handles[handle as usize - 1] = false;
                arguments![handle]
            }
            Map => {
                let (reservation, handle) = (self.reservation()?, self.handle()?);
                let (offset, size) = self.range(reservation);
                let skipped = self.mostly(&[0], &[1 << 21, 4096, 1 << 16]);
                arguments![reservation, offset, size, skipped, handle, self.mostly(&[0], &[1])]
            }
            Unmap => {
                let reservation = self.reservation()?;
                let (offset, size) = self.range(reservation);
                arguments![reservation, offset, size]
            }
            SetAccess => {
                let reservation = self.reservation()?;
                let (offset, size) = self.range(reservation);
                arguments![reservation, offset, size, self.device(), self.mostly(&[3, 3, 1, 0], &[2, 4])]
            }
            GetAccess => {
                let reservation = self.reservation()?;
                arguments![self.device(), reservation, self.range(reservation).0]
            }
            Granularity => arguments![self.mostly(&[0, 1], &[2, 3, 4, 5, 6]), self.mostly(&[0, 1], &[2])],
            Export => arguments![self.handle()?, self.mostly(&[1], &[0, 2, 16]), self.mostly(&[0], &[1])],
            Import => {
                let from = self.handle()?;
                arguments![self.new_handle(), from]
            }
            RetainHandle => {
                let reservation = self.reservation()?;
                arguments![self.new_handle(), reservation, self.range(reservation).0]
            }
            RangeOfVirtual => {
                let reservation = self.reservation()?;
                arguments![reservation, self.range(reservation).0]
            }
            AttributeOfVirtual => {
                let reservation = self.reservation()?;
                arguments![
                    self.mostly(&[1, 2, 3, 4, 7, 8, 9, 11, 12, 13], &[99]),
                    reservation,
                    self.range(reservation).0
                ]
            }
            _ => return None,
        })
    }
}
