//! Memory that the ranks register, which all of them map, so that kernels read and write it where it is.
//!
//! Every rank holds a registration of its own memory, so that the memory stays in place, and sends descriptors of the
//! physical allocations under it to the others.

use super::{
    GatheringCall, ProcessGroup,
    descriptors::{receive, send},
    rendezvous::{self, Id, RankInfo, broadcast_error, checked},
    symmetric_buffer::{SymmetricBuffer, import_part, release_all},
};
use crate::{
    base::{deadline::Deadline, log, units::Bytes},
    collectives::sleep::SleepState,
    driver::{
        Driver, Physical, Span,
        group::{DirectMemory, Mode, PLACE_BITS, REGISTRATION_ROW_BYTES, REGISTRATION_ROWS, offsets, place},
    },
    error::{Context, Error, Result, invalid},
    memory::registration::{self, OwnedRegistration, PartHandle},
    observe::Operand,
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
};
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

/// The bytes of a rank's row before what follows: the id of a rendezvous, and a status.
const ROW: usize = 132;
const ID: usize = 128;
/// The number of descriptors that a rank sends to each other at a time.
const DESCRIPTORS: usize = 16;

/// Memory that all ranks have registered together, in one call.
#[derive(Debug)]
pub struct GroupRegistration {
    /// The number, which is the same for all ranks.
    number: u64,
    /// This rank.
    rank: u32,
    /// The memory of each rank, as it is mapped in this process.
    memory: Vec<Span>,
    /// Whether the kernels of all ranks find its addresses by its number.
    is_listed: bool,
    /// The allocator's registration, which keeps this rank's memory in place.
    registration: u64,
    /// The mappings of the other ranks' memory.
    mappings: Vec<Option<SymmetricBuffer>>,
    /// For the graphs that have captured calls with it.
    state: Arc<SleepState>,
}

impl GroupRegistration {
    /// Creates one of memory of this rank alone.
    #[cfg(test)]
    pub fn of(number: u64, address: u64, bytes: usize, is_listed: bool) -> GroupRegistration {
        let memory = vec![Span::dangling(address).with_length(bytes)];
        let state = Arc::new(SleepState::of_memory());
        GroupRegistration { number, rank: 0, memory, is_listed, registration: 0, mappings: Vec::new(), state }
    }

    /// Unmaps the memory of the other ranks, and ends the registration. No kernel may use it any more.
    pub fn release(self, driver: &Driver) {
        self.mappings.into_iter().flatten().for_each(|mapping| mapping.release(driver));
        log::ignore(registration::unregister(self.registration), "ending the registration of a rank's memory");
    }

    /// Returns this rank's memory.
    fn own(&self) -> Span {
        self.memory[self.rank as usize]
    }

    /// Returns the state for a capture of a call that uses memory, if some of it is registered here.
    pub fn state_for(&self, used: &[Operand]) -> Option<&Arc<SleepState>> {
        let (start, end) = (self.own().address(), self.own().address() + self.own().bytes() as u64);
        used.iter().any(|used| used.start < end && start < used.end).then_some(&self.state)
    }

    /// Returns the offset of a span in this rank's memory, if all of it is there.
    fn offset_of(&self, span: Span) -> Option<u64> {
        let offset = span.address().checked_sub(self.own().address())?;
        let end = offset.checked_add(span.bytes() as u64)?;
        (end <= self.own().bytes() as u64).then_some(offset)
    }

    /// Returns `bytes` bytes from an offset on, of each rank.
    fn parts(&self, offset: u64, bytes: u64) -> Vec<Span> {
        self.memory.iter().map(|memory| memory.part(offset as usize, bytes as usize)).collect()
    }
}

/// What a rank tells the others of its memory.
struct Layout {
    /// The number of registered bytes.
    bytes: u64,
    /// The offset of the first one in the first physical allocation.
    offset: u64,
    /// The sizes of the physical allocations.
    parts: Vec<u64>,
}

impl Layout {
    fn row(&self, id: &Id) -> Vec<u8> {
        let mut row = id.bytes().to_vec();
        row.extend([0; ROW - ID]);
        for number in [self.bytes, self.offset].iter().chain(&self.parts) {
            row.extend(number.to_le_bytes());
        }
        row
    }

    /// Parses the row of a rank, which may be the error of that rank.
    fn read(rank: usize, row: &[u8]) -> Result<Layout> {
        let unknown =
            || Error::new(Status::PEER_LOST, format!("rank {rank} sent an invalid description of its memory"));
        let (head, body) = row.split_at_checked(ROW).ok_or_else(unknown)?;
        let status = head[ID..].as_chunks().0.first().map_or(0, |status| i32::from_le_bytes(*status));
        if status != 0 {
            return Err(Error::new(Status(status), format!("rank {rank}: {}", String::from_utf8_lossy(body))));
        }
        let numbers: Vec<u64> = body.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let [bytes, offset, parts @ ..] = &numbers[..] else { return Err(unknown()) };
        let all = parts.iter().try_fold(0, |sum: u64, part| sum.checked_add(*part));
        match all.filter(|all| offset.checked_add(*bytes).is_some_and(|end| end <= *all)) {
            Some(_) => Ok(Layout { bytes: *bytes, offset: *offset, parts: parts.to_vec() }),
            None => Err(unknown()),
        }
    }
}

impl ProcessGroup {
    /// Registers memory with all ranks, each of which passes as many bytes. Collective; blocks.
    pub fn register(&self, memory: Span) -> Result<()> {
        let register = || {
            if let Some(error) = self.error() {
                return Err(error);
            }
            let runtime = runtime::ready()?;
            let id = Id::new()?;
            let prepared = self.prepare(memory);
            let own_row = match &prepared {
                Ok((_, layout)) => layout.row(&id),
                Err(error) => [&id.bytes(), &error.status().0.to_le_bytes()[..], error.message().as_bytes()].concat(),
            };
            let row = self.send_row(GatheringCall::Register, &own_row)?;
            let rows = self.collect_rows(&row)?;
            let (registration, own_layout) = prepared?;
            let layouts: Vec<Layout> =
                rows.iter().enumerate().map(|(rank, row)| Layout::read(rank, row)).collect::<Result<_>>()?;
            if let Some((rank, other)) = layouts.iter().enumerate().find(|(_, other)| other.bytes != own_layout.bytes) {
                let what = format!("rank {rank} registers {} bytes, this rank {}", other.bytes, own_layout.bytes);
                return Err(Error::new(Status::RANK_MISMATCH, what));
            }
            let mut first = [0; ID];
            first.copy_from_slice(&rows[0][..ID]);
            let ranks: Vec<usize> = (0..rows.len()).collect();
            // A place has room for so many numbers, and 0 is no place.
            let number = (row.number() - 1) % ((1 << (64 - PLACE_BITS)) - 1) + 1;
            // Of the registrations with the same row, the first one has it; the ranks have the same registrations.
            let has_row = |registered: &GroupRegistration| {
                registered.is_listed && registered.number % REGISTRATION_ROWS == number % REGISTRATION_ROWS
            };
            let is_listed = !self.registrations.read().iter().any(has_row);
            let mut registered = GroupRegistration {
                number,
                rank: self.rank,
                memory: vec![memory],
                is_listed,
                registration: 0,
                mappings: vec![],
                state: Arc::new(SleepState::of_memory()),
            };
            self.after_gather(&row, &ranks, "the communicator", |stop| {
                let id = Id::read(&first).ok_or_else(|| invalid("rank 0 sent no id"))?;
                let stops = || stop().is_some();
                let deadline = self.deadline().unless(&stops);
                let mapped = runtime.driver.with_relaxed_capture(|| {
                    self.map_registration(
                        runtime,
                        &id,
                        registration.handle(),
                        &mut registered,
                        &layouts,
                        deadline,
                        stop,
                    )
                });
                mapped.map_err(Error::from).flatten().map_err(|error| stop().unwrap_or(error))
            })?;
            registered.registration = registration.keep();
            self.registrations.write().push(registered);
            Ok(())
        };
        register()
            .context(|| format!("registering {} as rank {} of {}", Bytes(memory.bytes() as u64), self.rank, self.size))
    }

    /// Does what this rank can do before it meets the others: holds the memory in place, and describes it.
    fn prepare(&self, memory: Span) -> Result<(OwnedRegistration, Layout)> {
        let (address, bytes) = (memory.address(), memory.bytes() as u64);
        if bytes >= 1 << PLACE_BITS {
            return Err(invalid(format!("{} are too many for one registration", Bytes(bytes))));
        }
        // The allocator refuses what ends beyond all addresses.
        let end = address.saturating_add(bytes);
        let overlaps = |registered: &GroupRegistration| {
            let own = registered.own();
            own.address() < end && address < own.address() + own.bytes() as u64
        };
        if self.registrations.read().iter().any(overlaps) {
            return Err(invalid("the memory overlaps memory that is registered with this communicator already"));
        }
        let name = format!("rank {} of a communicator of {}", self.rank, self.size);
        let registration = OwnedRegistration::new(address, bytes, &name)?;
        let device = registration::info(registration.handle())?.device;
        if device != self.device {
            let what = format!("the memory is of device {device}, the rank of device {}", self.device);
            return Err(Error::new(Status::DEVICE_MISMATCH, what));
        }
        let parts = registration::parts(registration.handle())?;
        // Also checks that the memory can be shared at all.
        export(registration.handle(), 0)?;
        let offset = parts.first().map_or(0, |(start, _)| address - start);
        let parts = parts.into_iter().map(|(_, bytes)| bytes).collect();
        Ok((registration, Layout { bytes, offset, parts }))
    }

    /// Exchanges descriptors with the other ranks, and maps their memory, which the registration then has.
    #[allow(clippy::too_many_arguments)]
    fn map_registration(
        &self,
        runtime: &Runtime,
        id: &Id,
        registration: u64,
        registered: &mut GroupRegistration,
        layouts: &[Layout],
        deadline: Deadline,
        stop: &dyn Fn() -> Option<Error>,
    ) -> Result<()> {
        let (driver, device) = (&runtime.driver, runtime.device(self.device as i32)?);
        let mut info = RankInfo([0; RankInfo::NUMBERS]);
        (info.0[0], info.0[RankInfo::AGREED]) = (u64::from(self.rank), u64::from(self.size));
        // The rendezvous passes one descriptor of each rank, and sockets, which pass the others.
        let mut rendezvous = rendezvous::meet(id, info, self.size, &export(registration, 0)?, deadline, stop)?;
        rendezvous.buffers.clear();
        let mut mappings: Vec<Option<SymmetricBuffer>> = layouts.iter().map(|_| None).collect();
        let links = std::mem::take(&mut rendezvous.links);
        let mut imported: Vec<Vec<(Physical, u64)>> = layouts.iter().map(|_| Vec::new()).collect();
        let mapped =
            exchange(driver, registration, layouts, &links, self.rank, deadline, &mut imported).and_then(|()| {
                for (rank, mapping) in mappings.iter_mut().enumerate().filter(|(rank, _)| *rank as u32 != self.rank) {
                    let parts = std::mem::take(&mut imported[rank]);
                    *mapping = Some(SymmetricBuffer::import(driver, device, rank as u32, parts)?);
                }
                let own = registered.memory.clone();
                let memory = mappings.iter().zip(layouts).flat_map(|(mapping, layout)| match mapping {
                    Some(mapping) => vec![mapping.part(layout.offset, layout.bytes)],
                    None => own.clone(),
                });
                registered.memory = memory.collect();
                if registered.is_listed { self.list(runtime, device, registered) } else { Ok(()) }
            });
        imported.into_iter().for_each(|parts| release_all(driver, parts));
        // The others may wait for descriptors of this rank.
        let mapped = mapped.map_err(|error| broadcast_error(links.iter().flatten(), error));
        match rendezvous.conclude(mapped) {
            Ok(()) => {
                registered.mappings = mappings;
                Ok(())
            }
            Err(error) => {
                mappings.into_iter().flatten().for_each(|mapping| mapping.release(driver));
                Err(error)
            }
        }
    }

    /// Writes the addresses of registered memory to this rank's buffer, where kernels find them by places.
    fn list(&self, runtime: &Runtime, device: &Device, registered: &GroupRegistration) -> Result<()> {
        self.check_awake()?;
        let addresses = registered.memory.iter().map(|span| span.address());
        let row: Vec<u8> = [registered.number].into_iter().chain(addresses).flat_map(u64::to_le_bytes).collect();
        self.write_row(runtime, device, registered.number, &row)
    }

    /// Writes the row of a registration to this rank's buffer, or to its contents while the group sleeps.
    fn write_row(&self, runtime: &Runtime, device: &Device, number: u64, row: &[u8]) -> Result<()> {
        let at = offsets::REGISTRATIONS + number % REGISTRATION_ROWS * REGISTRATION_ROW_BYTES;
        // Until the copy is complete, the group does not fall asleep.
        let mut contents = self.contents.lock();
        if let Some(contents) = &mut *contents {
            contents.write(at, row);
            return Ok(());
        }
        self.check_awake()?;
        device.with_context(&runtime.driver, |driver| {
            sync_debug::require("the registration of memory with a group", || {
                Ok(driver.copy_from_host(self.own_buffer().part(at, row.len() as u64), row, self.stream)?)
            })
        })
    }

    /// Ends this rank's registration of the memory at an address, after this rank's work.
    pub fn deregister(&self, address: u64) -> Result<()> {
        sync_debug::check("plinth_communicator_deregister")?;
        let runtime = runtime::ready()?;
        let find = |registrations: &[GroupRegistration]| {
            registrations.iter().position(|registered| registered.own().address() == address)
        };
        let unknown =
            || invalid(format!("{address:#x} is not the address of memory that is registered with the communicator"));
        // From here on no call uses it, and those that do are launched.
        let registered = {
            let mut registrations = self.registrations.write();
            let index = find(&registrations).ok_or_else(unknown)?;
            registrations.swap_remove(index)
        };
        let waited = self.deadline().until(
            || format!("rank {} of {} waited for its work, to deregister memory", self.rank, self.size),
            || {
                // Ends work that waits for a rank that is gone.
                self.check_peers();
                let idle = self.orders.try_lock().filter(|orders| orders.is_idle());
                Ok(idle.map(|orders| orders.report_completed()))
            },
        );
        let unlist = || self.unlist(runtime, &registered);
        let ended = waited.and_then(|()| unlist().or_else(|_| unlist()).or_else(|_| unlist()));
        match ended {
            Ok(()) => {
                registered.state.destroy();
                registered.release(&runtime.driver)
            }
            Err(_) => self.registrations.write().push(registered),
        }
        ended
    }

    /// Makes kernels no longer find the addresses of registered memory, for other ranks that have not deregistered it.
    fn unlist(&self, runtime: &Runtime, registered: &GroupRegistration) -> Result<()> {
        if !registered.is_listed {
            return Ok(());
        }
        let unlisted = runtime.driver.with_relaxed_capture(|| {
            self.write_row(runtime, runtime.device(self.device as i32)?, registered.number, &0_u64.to_le_bytes())
        });
        unlisted.map_err(Error::from).flatten()
    }

    /// Returns whether memory of this rank is registered with the group, all of it in one call.
    pub fn is_registered(&self, memory: Span) -> bool {
        // Not behind a thread that waits to change them while a launch, which may wait for room in a stream, keeps them.
        self.registrations.read_recursive().iter().any(|registered| registered.offset_of(memory).is_some())
    }

    /// Returns the registered memory of a call, if its kernels can use it where it is, and their mode.
    pub(super) fn direct(
        &self,
        registrations: &[GroupRegistration],
        mode: Mode,
        root: u32,
        from: Span,
        to: Span,
        bytes: u64,
    ) -> Option<(Mode, DirectMemory)> {
        if !self.tuning.is_direct(mode, bytes) {
            return None;
        }
        let find = |span| registrations.iter().find_map(|registered| Some((registered, registered.offset_of(span)?)));
        let rank = u64::from(self.rank);
        // What this rank uses of the memory of each rank: some bytes from an offset on.
        let of = |span, offset, bytes| {
            let (registered, start) = find(span)?;
            Some((place(registered.number, start), registered.parts(start + offset, bytes)))
        };
        let input = |offset, bytes| {
            let (place, inputs) = of(from, offset, bytes)?;
            Some((mode, DirectMemory::new([place, 0], &inputs, &[])))
        };
        let output = |mode, offset, inputs: &[Span]| {
            let (place, outputs) = of(to, offset, bytes)?;
            Some((mode, DirectMemory::new([0, place], inputs, &outputs)))
        };
        match mode {
            Mode::AllReduceParts => {
                let part = mode.part(bytes, self.size);
                let ((input, inputs), (output, outputs)) = (of(from, rank * part, part)?, of(to, rank * part, part)?);
                Some((mode, DirectMemory::new([input, output], &inputs, &outputs)))
            }
            // Each rank writes its own input, which it takes for that of the root, rank 0.
            Mode::AllGather => output(mode, rank * bytes, &[from]),
            Mode::Broadcast | Mode::BroadcastParts if self.size > 1 => output(Mode::BroadcastParts, 0, &[]),
            Mode::ReduceScatter => input(rank * bytes, bytes),
            // In place, a rank would overwrite what another one has yet to read.
            Mode::AllToAll if from.address() != to.address() => {
                output(mode, rank * bytes, &[]).or_else(|| input(rank * bytes, bytes))
            }
            Mode::ReduceParts if self.size > 1 => {
                let others = u64::from(self.size - 1);
                let each = bytes.div_ceil(others).next_multiple_of(16);
                let index = u64::from((self.rank + self.size - root) % self.size);
                // The root combines the row of one other rank, and otherwise nothing if the others can write to its output.
                let (target, part) = match index {
                    0 if others == 1 => (0, bytes),
                    0 => (listed_place(registrations, to), bytes),
                    _ => (each * (index - 1), each),
                };
                let offset = if index == 0 { 0 } else { target.min(bytes) };
                let (_, mut memory) = input(offset, part.min(bytes - offset))?;
                memory.target = target;
                Some((Mode::ReduceParts, memory))
            }
            _ => None,
        }
    }
}

/// Returns the place of memory in a registration that kernels find, or 0.
pub(super) fn listed_place(registrations: &[GroupRegistration], memory: Span) -> u64 {
    let mut listed = registrations.iter().filter(|registered| registered.is_listed);
    listed.find_map(|registered| Some(place(registered.number, registered.offset_of(memory)?))).unwrap_or(0)
}

/// Returns a descriptor of one of the physical allocations under a registration.
fn export(registration: u64, index: u32) -> Result<OwnedFd> {
    match registration::part(registration, index, false)?.handle {
        PartHandle::FileDescriptor(descriptor) => Ok(descriptor),
        PartHandle::Fabric(_) => Err(Error::new(Status::PANIC, "an export as a descriptor made a fabric handle")),
    }
}

/// Sends descriptors of this rank's memory to the others, and imports the memory of the others. Goes in rounds, so that few
/// descriptors are open at a time.
fn exchange(
    driver: &Driver,
    registration: u64,
    layouts: &[Layout],
    links: &[Option<UnixStream>],
    rank: u32,
    deadline: Deadline,
    imported: &mut [Vec<(Physical, u64)>],
) -> Result<()> {
    let failed = |peer: usize, error: io::Error| {
        let status = if error.kind() == io::ErrorKind::TimedOut { Status::TIMED_OUT } else { Status::PEER_LOST };
        Error::new(status, format!("exchanging descriptors with rank {peer}: {error}"))
    };
    let peers = || links.iter().enumerate().filter_map(|(peer, link)| Some((peer, link.as_ref()?)));
    let own = layouts[rank as usize].parts.len();
    let most = layouts.iter().map(|layout| layout.parts.len()).max().unwrap_or(0);
    for first in (0..most).step_by(DESCRIPTORS) {
        let round = first.min(own)..(first + DESCRIPTORS).min(own);
        let descriptors = round.map(|index| export(registration, index as u32)).collect::<Result<Vec<OwnedFd>>>()?;
        let borrowed: Vec<BorrowedFd> = descriptors.iter().map(AsFd::as_fd).collect();
        for (peer, link) in peers() {
            send(link, 0, &[], &borrowed, deadline).map_err(|error| failed(peer, error))?;
        }
        for (peer, link) in peers() {
            let message = receive(link, deadline).map_err(|error| failed(peer, error)).and_then(checked)?;
            let sizes = layouts[peer].parts.iter().skip(first).take(DESCRIPTORS);
            if sizes.len() != message.descriptors.len() {
                return Err(failed(peer, io::ErrorKind::InvalidData.into()));
            }
            for (descriptor, bytes) in message.descriptors.iter().zip(sizes) {
                imported[peer].push(import_part(driver, peer, descriptor, *bytes)?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_describes_memory_or_has_an_error() {
        let id = Id::new().unwrap();
        let layout = Layout { bytes: 5000, offset: 100, parts: vec![4096, 2048] };
        let row = layout.row(&id);
        let read = Layout::read(1, &row).unwrap();
        assert_eq!((read.bytes, read.offset, read.parts), (5000, 100, vec![4096, 2048]));
        let mut failed = row[..ID].to_vec();
        failed.extend(Status::OUT_OF_MEMORY.0.to_le_bytes());
        failed.extend(b"no memory");
        let error = Layout::read(1, &failed).err().unwrap();
        assert_eq!((error.status(), error.message()), (Status::OUT_OF_MEMORY, "rank 1: no memory"));
    }

    #[test]
    fn a_row_that_describes_no_memory_is_an_error() {
        let id = Id::new().unwrap();
        let row = |bytes, offset, parts: &[u64]| Layout { bytes, offset, parts: parts.to_vec() }.row(&id);
        let long = row(10, 0, &[10]);
        for row in [
            &long[..ROW - 1],
            &long[..ROW + 15],
            &row(10, 1, &[10]),
            &row(u64::MAX, 2, &[10]),
            &row(1, 0, &[u64::MAX, 2]),
        ] {
            assert_eq!(Layout::read(1, row).err().unwrap().status(), Status::PEER_LOST, "{row:?}");
        }
    }
}
