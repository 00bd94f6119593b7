//! The calls of a group: what is checked before a launch, the order of launches, and what is said when the group is broken.

use super::{Group, links::Done};
use crate::{
    collectives::devices::ReduceOp,
    driver::{
        self, Driver, Event, Span,
        group::{Collective, ENTRIES, FailureReport, MAX_TRANSFERS, Mode, Reason, TRANSFER, Transfers},
        types::{CU_EVENT_WAIT_DEFAULT, CU_STREAM_PER_THREAD},
    },
    error::{Context, Error, Result},
    runtime::{self, device::Device, tensor::ElementType},
    sanitizer::{self, Operand},
    status::Status,
    stream::{Stream, event_pool, kernel::Kernel},
};

/// A part of a call of [`Group::exchange`]: what goes to a rank, or comes from it.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The other rank.
    pub peer: u32,
    /// Whether this rank sends.
    pub sends: bool,
    /// What is read, or written: all of it.
    pub memory: Span,
    /// The type of its elements.
    pub element: ElementType,
}

/// The types of elements in the order of their numbers, and the kernels that reduce them.
const ELEMENTS: &[(ElementType, Kernel)] = &[
    (ElementType::F16, Kernel::GroupF16),
    (ElementType::Bf16, Kernel::GroupBf16),
    (ElementType::F32, Kernel::GroupF32),
    (ElementType::F64, Kernel::GroupF64),
    (ElementType::U8, Kernel::GroupU8),
    (ElementType::I8, Kernel::GroupI8),
    (ElementType::U16, Kernel::GroupU16),
    (ElementType::I16, Kernel::GroupI16),
    (ElementType::U32, Kernel::GroupU32),
    (ElementType::I32, Kernel::GroupI32),
    (ElementType::U64, Kernel::GroupU64),
    (ElementType::I64, Kernel::GroupI64),
    (ElementType::Bool, Kernel::GroupBool),
    (ElementType::Complex64, Kernel::GroupC64),
    (ElementType::Complex128, Kernel::GroupC128),
];

fn number_of(element: ElementType) -> Result<(u32, Kernel)> {
    let found = ELEMENTS.iter().enumerate().find(|(_, (known, _))| *known == element);
    found
        .map(|(number, (_, kernel))| (number as u32, *kernel))
        .ok_or_else(|| Error::new(Status::NOT_SUPPORTED, format!("groups of processes have no kernels for {element}")))
}

const OPS: [(ReduceOp, &str); 5] = [
    (ReduceOp::Sum, "sum"),
    (ReduceOp::Product, "product"),
    (ReduceOp::Minimum, "minimum"),
    (ReduceOp::Maximum, "maximum"),
    (ReduceOp::Average, "average"),
];

/// What a launch must come after other launches of: all collectives are one sequence, and each direction to each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    Collectives,
    Sends(u32),
    Receives(u32),
}

/// The last launch of a sequence.
#[derive(Debug)]
struct Order {
    of: Sequence,
    stream: Option<Place>,
    event: Event,
    /// How much was launched outside of captures: collectives, or pieces in the first lane of transfers.
    parts: u64,
    /// The same of the last capture that had any, by its number.
    captured: Option<(u64, Place)>,
    captured_event: Event,
}

/// A stream and its number, which distinguishes it from a later stream with the same handle and from the per-thread default
/// streams of other threads.
#[derive(Debug, Clone, Copy)]
struct Place {
    stream: driver::Stream,
    /// `None` if the driver cannot say, and in a capture, where it must not be asked: the question would invalidate the capture.
    number: Option<u64>,
}

impl Place {
    fn of(driver: &Driver, stream: driver::Stream, capture: Option<u64>) -> Place {
        let number = if capture.is_none() { driver.stream_number(stream).ok() } else { None };
        Place { stream, number }
    }

    /// Whether eager work launched in both runs in launch order. A program may destroy a stream while its work is pending and
    /// get the same handle for a new stream.
    fn is_same_eager(self, other: Place) -> bool {
        self.number.is_some() && (self.stream, self.number) == (other.stream, other.number)
    }

    /// Whether both are the same stream, given that both belong to the same valid capture: destroying a stream invalidates its
    /// capture, so there the handle suffices, except for a handle that means another stream in another thread.
    fn is_same_captured(self, other: Place) -> bool {
        self.stream == other.stream && self.stream.handle() > CU_STREAM_PER_THREAD
    }
}

/// The order of the launches of a group. Launches of one sequence in different streams wait for each other; those of a
/// capture for those of the same one.
#[derive(Debug, Default)]
pub struct Orders(Vec<Order>);

impl Orders {
    fn of(&mut self, of: Sequence, device: &Device, driver: &Driver) -> Result<&mut Order> {
        let index = match self.0.iter().position(|order| order.of == of) {
            Some(index) => index,
            None => {
                let event = event_pool::acquire(device, driver, 0)?;
                let captured_event = event_pool::acquire(device, driver, 0)?;
                self.0.push(Order { of, stream: None, event, parts: 0, captured: None, captured_event });
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[index])
    }

    /// Whether more was launched, outside of captures, than a rank that has left has done its part of: that cannot end. What
    /// is sent needs only room.
    pub fn exceed(&self, peer: u32, done: &Done) -> bool {
        self.0.iter().any(|order| match order.of {
            Sequence::Collectives => order.parts > done.collectives,
            Sequence::Sends(to) => to == peer && order.parts > done.received + u64::from(ENTRIES),
            Sequence::Receives(from) => from == peer && order.parts > done.sent,
        })
    }

    /// Whether all that was launched outside of captures has ended. What cannot be asked about any more has.
    pub fn is_idle(&self) -> bool {
        let Ok(runtime) = runtime::ready() else { return true };
        let driver = &runtime.driver;
        let idle = driver.with_relaxed_capture(|| {
            let launched = self.0.iter().filter(|order| order.stream.is_some());
            launched.map(|order| driver.event_query(order.event)).all(|answer| answer.unwrap_or(true))
        });
        idle.unwrap_or(true)
    }

    /// Puts the events back.
    pub fn give_back(&mut self, device: &Device) {
        for order in self.0.drain(..) {
            event_pool::release(device, 0, order.event);
            event_pool::release(device, 0, order.captured_event);
        }
    }
}

impl Order {
    fn wait(&self, driver: &Driver, place: Place, capture: Option<u64>) -> Result<()> {
        let awaited = match capture {
            None => self.stream.filter(|before| !before.is_same_eager(place)).map(|_| self.event),
            Some(id) => {
                let captured = self.captured.filter(|(of, before)| *of == id && !before.is_same_captured(place));
                captured.map(|_| self.captured_event)
            }
        };
        match awaited {
            Some(event) => Ok(driver.stream_wait_event(place.stream, event, CU_EVENT_WAIT_DEFAULT)?),
            None => Ok(()),
        }
    }

    fn note(&mut self, driver: &Driver, place: Place, capture: Option<u64>, parts: u64) -> Result<()> {
        match capture {
            None => {
                self.parts += parts;
                driver.event_record(self.event, place.stream)?;
                self.stream = Some(place);
            }
            Some(id) => {
                driver.event_record(self.captured_event, place.stream)?;
                self.captured = Some((id, place));
            }
        }
        Ok(())
    }
}

/// What a collective is about.
struct Request {
    name: &'static str,
    /// The mode for rows of some bytes.
    mode: Mode,
    element: ElementType,
    op: Option<ReduceOp>,
    root: u32,
    count: u64,
}

impl Group {
    /// Reduces `count` elements of each rank; every rank gets the result. `to` may be `from`.
    pub fn all_reduce(
        &self,
        from: Span,
        to: Span,
        count: u64,
        element: ElementType,
        op: ReduceOp,
        stream: Stream,
    ) -> Result<()> {
        let mode = if self.is_one_shot(count, element) { Mode::AllReduce } else { Mode::AllReduceParts };
        self.collective(Request { name: "all_reduce", mode, element, op: Some(op), root: 0, count }, from, to, stream)
    }

    /// Reduces `count` elements of each rank; rank `root` gets the result, in `to`, which may be `from`. The others' `to` is
    /// not looked at.
    #[allow(clippy::too_many_arguments)]
    pub fn reduce(
        &self,
        from: Span,
        to: Span,
        count: u64,
        element: ElementType,
        op: ReduceOp,
        root: u32,
        stream: Stream,
    ) -> Result<()> {
        let mode = if self.is_one_shot(count, element) { Mode::Reduce } else { Mode::ReduceParts };
        self.collective(Request { name: "reduce", mode, element, op: Some(op), root, count }, from, to, stream)
    }

    /// Gives every rank the `count` elements of rank `root`, in `to`, which may be `from`. The others' `from` is not looked
    /// at.
    pub fn broadcast(
        &self,
        from: Span,
        to: Span,
        count: u64,
        element: ElementType,
        root: u32,
        stream: Stream,
    ) -> Result<()> {
        let mode = if self.is_one_shot(count, element) { Mode::Broadcast } else { Mode::BroadcastParts };
        self.collective(Request { name: "broadcast", mode, element, op: None, root, count }, from, to, stream)
    }

    /// Gives every rank the `count` elements of each, one after the other. `from` may be the own place in `to`.
    pub fn all_gather(&self, from: Span, to: Span, count: u64, element: ElementType, stream: Stream) -> Result<()> {
        let request = Request { name: "all_gather", mode: Mode::Gather, element, op: None, root: 0, count };
        self.collective(request, from, to, stream)
    }

    /// Reduces `count` elements for each rank, which gets its part of the result. `to` may be the own place in `from`.
    pub fn reduce_scatter(
        &self,
        from: Span,
        to: Span,
        count: u64,
        element: ElementType,
        op: ReduceOp,
        stream: Stream,
    ) -> Result<()> {
        let mode = Mode::ReduceScatter;
        self.collective(
            Request { name: "reduce_scatter", mode, element, op: Some(op), root: 0, count },
            from,
            to,
            stream,
        )
    }

    /// Gives every rank `count` elements of each. `to` may be `from`.
    pub fn all_to_all(&self, from: Span, to: Span, count: u64, element: ElementType, stream: Stream) -> Result<()> {
        let request = Request { name: "all_to_all", mode: Mode::AllToAll, element, op: None, root: 0, count };
        self.collective(request, from, to, stream)
    }

    /// Sends `count` elements to another rank, which receives as many. What finds no room between the two waits for the
    /// receiver: there is room for four messages of up to 64 KiB, or for a mebibyte of longer ones.
    pub fn send(&self, from: Span, count: u64, element: ElementType, peer: u32, stream: Stream) -> Result<()> {
        self.transfer("send", from, count, element, peer, true, stream)
    }

    /// Receives `count` elements that another rank sends.
    pub fn recv(&self, to: Span, count: u64, element: ElementType, peer: u32, stream: Stream) -> Result<()> {
        self.transfer("recv", to, count, element, peer, false, stream)
    }

    #[allow(clippy::too_many_arguments)]
    fn transfer(
        &self,
        name: &str,
        memory: Span,
        count: u64,
        element: ElementType,
        peer: u32,
        sends: bool,
        stream: Stream,
    ) -> Result<()> {
        let checked = || {
            if peer == self.rank() {
                return Err(invalid("a rank sends to itself only while it receives, in one exchange".into()));
            }
            let memory = self.covers(memory, 1, count, element)?;
            self.exchange(&[Transfer { peer, sends, memory, element }], stream)
        };
        checked().context(|| format!("{name} of {count} {element} with rank {peer} as rank {}", self.rank()))
    }

    /// Sends and receives, all at once. Two transfers to one rank are in the order of the list, as they are at the other
    /// rank; and so are two from one.
    pub fn exchange(&self, transfers: &[Transfer], stream: Stream) -> Result<()> {
        let all: Vec<(Transfer, Stream)> = transfers.iter().map(|transfer| (*transfer, stream)).collect();
        self.exchange_in_streams(&all)
    }

    /// The same, each transfer in a stream of its own choice.
    pub fn exchange_in_streams(&self, transfers: &[(Transfer, Stream)]) -> Result<()> {
        for (transfer, _) in transfers {
            self.check_rank(transfer.peer)?;
            number_of(transfer.element)?;
        }
        let in_one = |one: Stream, other: Stream| one.raw == other.raw;
        launches(transfers, in_one).iter().try_for_each(|(_, stream, transfers)| self.exchange_once(transfers, *stream))
    }

    fn exchange_once(&self, transfers: &[Transfer], stream: Stream) -> Result<()> {
        let mut told = Transfers { group_info: self.group_info(), transfers: [Default::default(); MAX_TRANSFERS] };
        for (place, transfer) in told.transfers.iter_mut().zip(transfers) {
            let (number, _) = number_of(transfer.element)?;
            *place = driver::group::Transfer::of(transfer.memory, transfer.peer, transfer.sends, number);
        }
        let sequence = |(transfer, told): (&Transfer, &driver::group::Transfer)| {
            let of = if transfer.sends { Sequence::Sends } else { Sequence::Receives };
            (of(transfer.peer), told.chunks(self.tuning().entry))
        };
        let sequences: Vec<(Sequence, u64)> = transfers.iter().zip(&told.transfers).map(sequence).collect();
        let count = transfers.len() as u32;
        let used = transfers.iter().map(|transfer| match transfer.sends {
            true => sanitizer::read(transfer.memory),
            false => sanitizer::write(transfer.memory),
        });
        let used: Vec<Operand> = used.collect();
        self.launch(&sequences, stream, Kernel::GroupTransfer, &used, |driver, function, raw| {
            Ok(driver.launch_transfers(function, count, &told, raw)?)
        })
    }

    /// Whether rows go whole from every rank to every other.
    fn is_one_shot(&self, count: u64, element: ElementType) -> bool {
        count.saturating_mul(element.bytes()) <= self.tuning().one_shot
    }

    fn collective(&self, request: Request, from: Span, to: Span, stream: Stream) -> Result<()> {
        let Request { name, mode, element, op, root, count } = request;
        let launched = || {
            self.check_rank(root)?;
            let (number, reducing) = number_of(element)?;
            match op {
                Some(ReduceOp::Average) if element == ElementType::Bool => {
                    return Err(invalid("bools have no average".into()));
                }
                Some(ReduceOp::Minimum | ReduceOp::Maximum) if element.is_complex() => {
                    return Err(invalid("complex numbers have no order".into()));
                }
                _ => {}
            }
            let (read, written) = mode.rows(self.rank(), root, self.size());
            let (from, to) = (self.covers(from, read, count, element)?, self.covers(to, written, count, element)?);
            let bytes = count * element.bytes();
            if read * written > 0 {
                check_overlap(mode, u64::from(self.rank()) * bytes, from, to)?;
            }
            let used = [sanitizer::read(from), sanitizer::write(to)];
            let mut told = Collective::of(self.group_info(), from, to);
            (told.bytes, told.count, told.mode, told.element, told.root) = (bytes, count, mode as u32, number, root);
            told.op = OPS.iter().position(|(known, _)| Some(*known) == op).unwrap_or(0) as u32;
            let step = if mode.has_parts() { bytes.div_ceil(u64::from(self.size())) } else { bytes };
            let blocks = self.tuning().blocks_for(step, self.size());
            let kernel = if op.is_some() { reducing } else { Kernel::GroupCopy };
            self.launch(&[(Sequence::Collectives, 1)], stream, kernel, &used, |driver, function, raw| {
                Ok(driver.launch_group(function, blocks, &told, raw)?)
            })
        };
        launched().context(|| format!("{name} of {count} {element} as rank {} of {}", self.rank(), self.size()))
    }

    fn check_rank(&self, rank: u32) -> Result<()> {
        if rank < self.size() {
            return Ok(());
        }
        Err(invalid(format!("there is no rank {rank} among {}", self.size())))
    }

    /// The memory of so many rows of `count` elements, if there are as many.
    fn covers(&self, memory: Span, rows: u64, count: u64, element: ElementType) -> Result<Span> {
        let bytes =
            count.checked_mul(element.bytes()).and_then(|row| row.checked_mul(u64::from(self.size())).map(|_| row));
        let bytes = bytes.ok_or_else(|| invalid("there is not as much memory".into()))? * rows;
        if bytes > 0 && memory.address() == 0 {
            return Err(Error::new(Status::NULL_POINTER, "the memory is NULL"));
        }
        if memory.bytes() as u64 >= bytes {
            return Ok(memory.part(0, bytes as usize));
        }
        Err(invalid(format!("{bytes} bytes are needed, not {}", memory.bytes())))
    }

    /// Launches a kernel behind what it must come after, and counts its part of each sequence.
    fn launch(
        &self,
        sequences: &[(Sequence, u64)],
        stream: Stream,
        kernel: Kernel,
        used: &[Operand],
        launch: impl Fn(&Driver, driver::Function, driver::Stream) -> Result<()>,
    ) -> Result<()> {
        if stream.device != self.device() {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("the stream is of device {}, the rank of device {}", stream.device, self.device()),
            ));
        }
        let runtime = runtime::ready()?;
        let device = runtime.device(self.device() as i32)?;
        let function = device.kernel(&runtime.driver, kernel)?;
        // One launch after the other, so that the order of a group's launches is one that all threads agree about.
        let mut orders = self.orders.lock();
        if let Some(error) = self.broken() {
            return Err(error);
        }
        let capture = crate::ops::random::generator::capture_id(stream)?;
        for (sequence, _) in sequences {
            orders.of(*sequence, device, &runtime.driver)?;
        }
        let parts = |of| sequences.iter().find(|(sequence, _)| *sequence == of).map(|(_, parts)| *parts);
        let mut noted: Vec<_> =
            orders.0.iter_mut().filter_map(|order| parts(order.of).map(|parts| (order, parts))).collect();
        runtime.in_stream(stream, |driver, raw| {
            let place = Place::of(driver, raw, capture);
            noted.iter().try_for_each(|(order, _)| order.wait(driver, place, capture))?;
            sanitizer::access(runtime, stream, used)?;
            launch(driver, function, raw)?;
            noted.iter_mut().try_for_each(|(order, parts)| order.note(driver, place, capture, *parts))
        })
    }
}

/// The launches of an exchange, in order, with the number of the round: each has each direction to each rank once, in one
/// stream. The n-th transfer of a direction to a rank is in the n-th round, whatever its stream, as it is at the other rank:
/// so a round waits for nothing but those before it.
fn launches<S: Copy>(transfers: &[(Transfer, S)], is_same: impl Fn(S, S) -> bool) -> Vec<(usize, S, Vec<Transfer>)> {
    let mut launches: Vec<(usize, S, Vec<Transfer>)> = Vec::new();
    for (index, (transfer, stream)) in transfers.iter().enumerate() {
        let alike = |(other, _): &&(Transfer, S)| (other.peer, other.sends) == (transfer.peer, transfer.sends);
        let round = transfers[..index].iter().filter(alike).count();
        match launches.iter_mut().find(|(of, place, _)| *of == round && is_same(*place, *stream)) {
            Some((_, _, together)) => together.push(*transfer),
            None => launches.push((round, *stream, vec![*transfer])),
        }
    }
    launches.sort_by_key(|(round, ..)| *round);
    launches
}

/// Refuses memory that is both read and written in ways that the kernels do not mean.
fn check_overlap(mode: Mode, own: u64, from: Span, to: Span) -> Result<()> {
    let end = |span: Span| span.address() + span.bytes() as u64;
    let apart = end(from) <= to.address() || end(to) <= from.address();
    let in_place = match mode {
        Mode::Gather => from.address() == to.address() + own,
        Mode::ReduceScatter => to.address() == from.address() + own,
        _ => from.address() == to.address(),
    };
    if apart || in_place || from.bytes() == 0 || to.bytes() == 0 {
        return Ok(());
    }
    Err(invalid("what is read and what is written overlap, and not as they may".into()))
}

#[cold]
fn invalid(message: String) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// What a launch was for, in words.
fn describe(header: &[u64; 4]) -> String {
    let [kind, count, root, _] = *header;
    let element =
        ELEMENTS.get((kind >> 16 & 0xFFFF) as usize).map_or("unknown elements".into(), |(of, _)| of.to_string());
    if kind as u32 & 0xFF == TRANSFER {
        return format!("a transfer of {count} bytes of {element}");
    }
    let op = OPS.get((kind >> 8 & 0xFF) as usize).map_or("unknown", |(_, name)| *name);
    let name = match Mode::ALL.get((kind & 0xFF) as usize) {
        Some(Mode::Gather) => "all_gather".into(),
        Some(Mode::AllToAll) => "all_to_all".into(),
        Some(Mode::Broadcast | Mode::BroadcastParts) => format!("broadcast from rank {root}"),
        Some(Mode::ReduceScatter) => format!("reduce_scatter ({op})"),
        Some(Mode::AllReduce | Mode::AllReduceParts) => format!("all_reduce ({op})"),
        Some(Mode::Reduce | Mode::ReduceParts) => format!("reduce ({op}) to rank {root}"),
        None => "an unknown call".into(),
    };
    format!("{name} of {count} {element}")
}

/// The error that a report tells, at a rank of a group.
pub fn explain(rank: u32, size: u32, told: &FailureReport) -> Error {
    let Some((reason, about)) = Reason::read(told.word) else {
        return Error::new(Status::PANIC, format!("the group's kernels reported {:#x}", told.word));
    };
    let own = told.by == rank;
    let finder = if own { format!("rank {rank} of {size}") } else { format!("rank {} of {size}", told.by) };
    match reason {
        Reason::Timeout => Error::new(Status::TIMED_OUT, format!("{finder} waited too long for rank {about}")),
        Reason::Aborted => Error::new(Status::ABORTED, format!("rank {about} of {size} gave up the group")),
        Reason::Lost => Error::new(Status::PEER_LOST, format!("rank {about} of {size} is gone")),
        Reason::Mismatch if own => {
            let calls = [describe(&told.own), describe(&told.other)];
            let message = format!("rank {rank} of {size} calls {}, rank {about} calls {}", calls[0], calls[1]);
            Error::new(Status::RANK_MISMATCH, message)
        }
        Reason::Mismatch => Error::new(
            Status::RANK_MISMATCH,
            format!("{finder} found that its call and that of rank {about} do not belong together"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_between_two_keep_their_order_whatever_their_streams() {
        // The memory's length tells them apart.
        let transfer = |peer, sends, bytes| {
            let memory = Span::owned(4096, bytes);
            Transfer { peer, sends, memory, element: ElementType::U8 }
        };
        let asked = [
            (transfer(1, true, 1), 1),
            (transfer(1, true, 2), 2),
            (transfer(1, false, 3), 2),
            (transfer(2, true, 4), 1),
            (transfer(1, true, 5), 1),
            (transfer(1, false, 6), 1),
        ];
        let told = |(round, stream, transfers): (usize, i32, Vec<Transfer>)| {
            (round, stream, transfers.iter().map(|transfer| transfer.memory.bytes()).collect::<Vec<_>>())
        };
        let told: Vec<_> = launches(&asked, |one, other| one == other).into_iter().map(told).collect();
        // The third to rank 1 is not before the second, which is in another stream.
        assert_eq!(told, [(0, 1, vec![1, 4]), (0, 2, vec![3]), (1, 2, vec![2]), (1, 1, vec![6]), (2, 1, vec![5])]);
    }

    #[test]
    fn a_handle_that_is_used_again_is_another_stream() {
        let stream = driver::Stream::special(2).unwrap();
        let [first, second, unknown] = [Some(7), Some(8), None].map(|number| Place { stream, number });
        assert!(first.is_same_eager(first) && !first.is_same_eager(second));
        assert!(!unknown.is_same_eager(unknown));
        // The per-thread default stream is another stream in each thread.
        assert!(!unknown.is_same_captured(unknown));
    }
}
