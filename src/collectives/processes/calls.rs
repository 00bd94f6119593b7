//! The calls of a group, and the checks before their launches.

use super::{
    ProcessGroup,
    group_registration::{GroupRegistration, listed_place},
    launch_orders::{Addition, Sequence},
};
use crate::{
    collectives::devices::ReduceOp,
    driver::{
        self, Span,
        group::{Collective, DirectMemory, GroupInfo, GroupKernel, MAX_TRANSFERS, Mode, Transfers},
    },
    error::{Context, Error, Result, invalid},
    observe::{self, Operand},
    runtime::{self, tensor::ElementType},
    status::Status,
    stream::{self, Stream, capture_scope, kernel::Kernel, ordering, stream_id::StreamId},
};

/// One transfer of [`ProcessGroup::exchange`], to or from a rank.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The other rank.
    pub peer: u32,
    /// Whether this rank sends.
    pub sends: bool,
    /// The memory that is read or written, as a whole.
    pub memory: Span,
    /// The type of its elements.
    pub element: ElementType,
}

/// The element types in the order of their codes, and the kernels that reduce them.
pub(super) const ELEMENTS: &[(ElementType, Kernel)] = &[
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
    (ElementType::F8E4M3, Kernel::GroupF8E4M3),
    (ElementType::F8E5M2, Kernel::GroupF8E5M2),
];

fn number_of(element: ElementType) -> Result<(u32, Kernel)> {
    let found = ELEMENTS.iter().enumerate().find(|(_, (known, _))| *known == element);
    found
        .map(|(number, (_, kernel))| (number as u32, *kernel))
        .ok_or_else(|| Error::new(Status::NOT_SUPPORTED, format!("groups of processes have no kernels for {element}")))
}

/// The operators, numbered as in the kernels.
pub(super) const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Minimum, ReduceOp::Maximum, ReduceOp::Average];

/// A collective call.
struct Request {
    name: &'static str,
    /// The mode of the kernels.
    mode: Mode,
    element: ElementType,
    op: Option<ReduceOp>,
    root: u32,
    count: u64,
}

impl ProcessGroup {
    /// Reduces `count` elements of each rank; every rank receives the result. `to` may equal `from`.
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

    /// Reduces `count` elements of each rank to `to` of rank `root`, which may equal `from`. The `to` of the other
    /// ranks is ignored.
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

    /// Copies the `count` elements of rank `root` to `to` of every rank, which may equal `from`. The `from` of the
    /// other ranks is ignored.
    pub fn broadcast(
        &self,
        from: Span,
        to: Span,
        count: u64,
        element: ElementType,
        root: u32,
        stream: Stream,
    ) -> Result<()> {
        let in_packets = count.saturating_mul(element.bytes()) <= self.tuning().packets_for(Mode::Broadcast);
        let one_shot = in_packets || self.is_one_shot(count, element);
        let mode = if one_shot { Mode::Broadcast } else { Mode::BroadcastParts };
        self.collective(Request { name: "broadcast", mode, element, op: None, root, count }, from, to, stream)
    }

    /// Concatenates `count` elements of each rank in every rank. `from` may be the rank's own chunk of `to`.
    pub fn all_gather(&self, from: Span, to: Span, count: u64, element: ElementType, stream: Stream) -> Result<()> {
        let request = Request { name: "all_gather", mode: Mode::AllGather, element, op: None, root: 0, count };
        self.collective(request, from, to, stream)
    }

    /// Reduces `count` elements for each rank, which receives its chunk of the result. `to` may be the rank's own chunk
    /// of `from`.
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

    /// Sends `count` elements from each rank to each rank. `to` may equal `from`.
    pub fn all_to_all(&self, from: Span, to: Span, count: u64, element: ElementType, stream: Stream) -> Result<()> {
        let request = Request { name: "all_to_all", mode: Mode::AllToAll, element, op: None, root: 0, count };
        self.collective(request, from, to, stream)
    }

    /// Sends `count` elements to another rank, which receives the same number. A message of more than 1 MiB waits for the
    /// receiver. Shorter ones do if the buffers between the two are full: they hold four messages of up to 256 KiB, or one
    /// mebibyte of longer ones.
    pub fn send(&self, from: Span, count: u64, element: ElementType, peer: u32, stream: Stream) -> Result<()> {
        self.transfer("send", from, count, element, peer, true, stream)
    }

    /// Receives `count` elements from another rank.
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
                return Err(invalid("a rank sends to itself only while it receives, in one exchange"));
            }
            let memory = self.rows_of(memory, 1, count, element)?;
            self.exchange(&[Transfer { peer, sends, memory, element }], stream)
        };
        checked().context(|| format!("{name} of {count} {element} with rank {peer} as rank {}", self.rank()))
    }

    /// Executes sends and receives concurrently. Two transfers to the same rank are matched in the order of the list,
    /// and so are two from the same rank.
    pub fn exchange(&self, transfers: &[Transfer], stream: Stream) -> Result<()> {
        let all: Vec<(Transfer, Stream)> = transfers.iter().map(|transfer| (*transfer, stream)).collect();
        self.exchange_in_streams(&all)
    }

    /// Does the same with a stream for each transfer.
    pub fn exchange_in_streams(&self, transfers: &[(Transfer, Stream)]) -> Result<()> {
        for (transfer, _) in transfers {
            self.check_rank(transfer.peer)?;
            number_of(transfer.element)?;
        }
        // Work of the legacy default stream, and of streams that synchronize with it, does not run at the same time.
        let has_legacy = transfers.iter().any(|(_, stream)| stream.is_legacy());
        let is_same =
            |one: Stream, other: Stream| one.raw == other.raw || has_legacy && one.is_blocking() && other.is_blocking();
        let by_launch = by_launch(transfers, is_same);
        by_launch.chunk_by(|one, other| one.launch == other.launch).try_for_each(|launch| self.exchange_once(launch))
    }

    fn exchange_once(&self, transfers: &[TransferOfLaunch<Stream>]) -> Result<()> {
        let Some(TransferOfLaunch { stream, .. }) = transfers.first() else { return Ok(()) };
        let runtime = runtime::ready()?;
        let others = transfers.iter().map(|one| one.stream).filter(|other| other.raw != stream.raw);
        let others: Vec<Stream> = others.collect();
        let transfers = transfers.iter().map(|one| one.transfer);
        let group_info = self.group_info();
        let mut arguments = Transfers { group_info, transfers: [Default::default(); MAX_TRANSFERS] };
        // Held until the launch, so that the memory is not deregistered before.
        let registrations = self.registrations.read();
        for (argument, transfer) in arguments.transfers.iter_mut().zip(transfers.clone()) {
            *argument = transfer.arguments(&group_info, &registrations)?;
        }
        let addition = |(transfer, arguments): (Transfer, &driver::group::Transfer)| {
            let of = if transfer.sends { Sequence::Sends } else { Sequence::Receives };
            let is_rendezvous = group_info.is_rendezvous(arguments.bytes);
            Addition { sequence: of(transfer.peer), parts: arguments.chunks, is_rendezvous }
        };
        let additions: Vec<Addition> = transfers.clone().zip(&arguments.transfers).map(addition).collect();
        let used = transfers.map(|transfer| match transfer.sends {
            true => observe::read(transfer.memory),
            false => observe::write(transfer.memory),
        });
        let used: Vec<Operand> = used.collect();
        let count = used.len() as u32;
        others.iter().try_for_each(|other| stream::make_wait(runtime, *stream, *other))?;
        self.launch(&additions, *stream, Kernel::GroupTransfer, &used, &registrations, |function| {
            GroupKernel::transfers(function, count, arguments)
        })?;
        if others.is_empty() { Ok(()) } else { ordering::make_streams_wait(runtime, &others, *stream) }
    }

    /// Returns whether the one-shot algorithm applies: rows go whole from every rank to every other.
    fn is_one_shot(&self, count: u64, element: ElementType) -> bool {
        count.saturating_mul(element.bytes()) <= self.tuning().one_shot
    }

    fn collective(&self, request: Request, from: Span, to: Span, stream: Stream) -> Result<()> {
        let Request { name, mut mode, element, op, root, count } = request;
        let mut launched = || {
            self.check_rank(root)?;
            let (number, reducing) = number_of(element)?;
            if let Some(op) = op.filter(|op| !op.is_defined_for(element)) {
                return Err(Error::new(
                    Status::NOT_SUPPORTED,
                    format!("a reduction of {element} has no {}", op.name()),
                ));
            }
            let (read, written) = mode.rows(self.rank(), root, self.size());
            let (from, to) = (self.rows_of(from, read, count, element)?, self.rows_of(to, written, count, element)?);
            let bytes = count * element.bytes();
            let used = [observe::read(from), observe::write(to)];
            // Held until the launch, so that the memory is not deregistered before.
            let registrations = self.registrations.read();
            let memory;
            (mode, memory) =
                self.direct(&registrations, mode, root, from, to, bytes).unwrap_or((mode, DirectMemory::NONE));
            let mut arguments = Collective::of(self.group_info(), from, to, memory);
            (arguments.bytes, arguments.count, arguments.mode, arguments.element, arguments.root) =
                (bytes, count, mode as u32, number, root);
            arguments.op = OPS.iter().position(|known| Some(*known) == op).unwrap_or(0) as u32;
            let blocks = self.tuning().blocks_for(mode, bytes, self.size());
            let kernel = if op.is_some() { reducing } else { Kernel::GroupCopy };
            let addition = Addition { sequence: Sequence::Collectives, parts: 1, is_rendezvous: false };
            self.launch(&[addition], stream, kernel, &used, &registrations, |function| {
                GroupKernel::collective(function, blocks, arguments)
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

    /// Returns the memory of `rows` rows of `count` elements; fails if `memory` is too short.
    fn rows_of(&self, memory: Span, rows: u64, count: u64, element: ElementType) -> Result<Span> {
        let bytes =
            count.checked_mul(element.bytes()).and_then(|row| row.checked_mul(u64::from(self.size())).map(|_| row));
        let bytes = bytes.ok_or_else(|| invalid("there is not as much memory"))? * rows;
        if bytes > 0 && memory.address() == 0 {
            return Err(Error::new(Status::NULL_POINTER, "the memory is NULL"));
        }
        if memory.bytes() as u64 >= bytes {
            return Ok(memory.part(0, bytes as usize));
        }
        Err(invalid(format!("{bytes} bytes are needed, not {}", memory.bytes())))
    }

    /// Launches a kernel after the previous launches of the sequences that it adds to, and records it as their last launch.
    fn launch(
        &self,
        additions: &[Addition],
        stream: Stream,
        kernel: Kernel,
        used: &[Operand],
        registrations: &[GroupRegistration],
        with_parameters: impl FnOnce(driver::Function) -> GroupKernel,
    ) -> Result<()> {
        if stream.device() != self.device() {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("the stream is of device {}, the rank of device {}", stream.device(), self.device()),
            ));
        }
        let runtime = runtime::ready()?;
        let device = runtime.device(self.device() as i32)?;
        let kernel = with_parameters(device.kernel(&runtime.driver, kernel)?);
        // The lock makes the order of a group's launches the same for all threads.
        let mut orders = self.orders.lock();
        if let Some(error) = self.sticky_error() {
            return Err(error);
        }
        self.check_awake()?;
        let capture = stream::capture_id(runtime, stream)?;
        if let Some(capture) = capture {
            // A graph that the program captures by the driver's own calls cannot be refused.
            capture_scope::add(capture, &self.sleep);
            for state in registrations.iter().filter_map(|registered| registered.state_for(used)) {
                capture_scope::add(capture, state);
            }
        }
        let event = orders.add(additions, capture, device, &runtime.driver)?;
        // Before the launch, which may wait for a rank that has left.
        if capture.is_none() {
            self.launched.add(additions);
        }
        let launched = runtime.in_stream(stream, |driver, raw| {
            let stream_id = StreamId::of(driver, raw, capture);
            orders.of(additions).try_for_each(|order| order.wait(runtime, stream, stream_id, capture))?;
            observe::access(runtime, stream, used)?;
            if let Some(order) = orders.of(additions).next() {
                order.launch(driver, device, stream_id, capture, &kernel)?;
            }
            Ok(orders.record(additions, event.as_ref(), driver, stream_id, capture))
        });
        if launched.is_err() && capture.is_none() {
            self.launched.undo(additions);
        }
        launched?
    }
}

impl Transfer {
    /// Returns the arguments of the kernel. The receiver of a rendezvous names its memory, if it is registered.
    fn arguments(
        &self,
        group_info: &GroupInfo,
        registrations: &[GroupRegistration],
    ) -> Result<driver::group::Transfer> {
        let Transfer { peer, sends, memory, element } = *self;
        let mut arguments = driver::group::Transfer::of(group_info, memory, peer, sends, number_of(element)?.0);
        if !sends && group_info.is_rendezvous(arguments.bytes) {
            arguments.place = listed_place(registrations, memory);
        }
        Ok(arguments)
    }
}

/// A transfer of an exchange.
struct TransferOfLaunch<S> {
    /// The launch that it belongs to: its round, and the index of the first transfer in its stream.
    launch: (usize, usize),
    transfer: Transfer,
    stream: S,
}

/// Sorts the transfers of an exchange by launch. A launch has each direction to each rank at most once, and one stream, or
/// streams that count as the same. The n-th transfer of a direction to a rank is in round n, regardless of its stream, as
/// it is at the other rank; so a round waits only for earlier rounds.
fn by_launch<S: Copy>(transfers: &[(Transfer, S)], is_same: impl Fn(S, S) -> bool) -> Vec<TransferOfLaunch<S>> {
    let of_launch = |(index, &(transfer, stream)): (usize, &(Transfer, S))| {
        let before = transfers[..index].iter();
        let same_direction = |(other, _): &&(Transfer, S)| (other.peer, other.sends) == (transfer.peer, transfer.sends);
        let first = before.clone().position(|(_, other)| is_same(*other, stream)).unwrap_or(index);
        TransferOfLaunch { launch: (before.filter(same_direction).count(), first), transfer, stream }
    };
    let mut all: Vec<TransferOfLaunch<S>> = transfers.iter().enumerate().map(of_launch).collect();
    all.sort_by_key(|one| one.launch);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_of_a_rendezvous_names_its_registered_memory() {
        let group_info = GroupInfo { eager_transfer: 1000, lanes: 4, entry: 4096, ..GroupInfo::default() };
        let registrations =
            [GroupRegistration::of(3, 1 << 20, 8192, true), GroupRegistration::of(4, 2 << 20, 8192, false)];
        let place = |address, bytes, sends| {
            let memory = Span::dangling(address).with_length(bytes);
            Transfer { peer: 1, sends, memory, element: ElementType::U8 }
                .arguments(&group_info, &registrations)
                .unwrap()
                .place
        };
        assert_eq!(place((1 << 20) + 64, 1001, false), driver::group::place(3, 64));
        assert_eq!(place((1 << 20) + 64, 1001, true), 0);
        assert_eq!(place((1 << 20) + 64, 1000, false), 0);
        assert_eq!(place((1 << 20) + 8000, 1001, false), 0);
        assert_eq!(place(2 << 20, 1001, false), 0);
    }

    #[test]
    fn transfers_between_two_ranks_keep_their_order_in_any_streams() {
        // The length of the memory identifies a transfer.
        let transfer = |peer, sends, bytes| {
            let memory = Span::dangling(4096).with_length(bytes);
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
        let all = by_launch(&asked, |one, other| one == other);
        let launch = |launch: &[TransferOfLaunch<i32>]| {
            let bytes = launch.iter().map(|one| one.transfer.memory.bytes()).collect::<Vec<_>>();
            (launch[0].launch.0, launch[0].stream, bytes)
        };
        let launches: Vec<_> = all.chunk_by(|one, other| one.launch == other.launch).map(launch).collect();
        // The third transfer to rank 1 comes after the second, which is in another stream.
        assert_eq!(launches, [(0, 1, vec![1, 4]), (0, 2, vec![3]), (1, 1, vec![6]), (1, 2, vec![2]), (2, 1, vec![5])]);
    }
}
