//! Collectives between the processes of one machine, by kernels that read and write memory which all of them share.

use super::ReduceOp;
use crate::{
    driver::Span,
    error::{Error, Result},
    status::Status,
    stream::Stream,
    tensor::ElementType,
};
use std::time::Duration;

/// One rank's membership in a group.
#[derive(Debug)]
pub struct Group(());

/// A part of one call of [`Group::exchange`]: what goes to a rank, or comes from it.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The other rank.
    pub peer: u32,
    /// Whether this rank sends.
    pub sends: bool,
    /// What is read, or written.
    pub memory: Span,
}

impl Group {
    /// A new group's name, which any process may make, to be passed to the others by any channel.
    pub fn new_id() -> Result<[u8; 128]> {
        Err(todo())
    }

    /// Whether [`new_id`](Self::new_id) made this.
    pub fn is_id(_bytes: &[u8; 128]) -> bool {
        false
    }

    /// Joins a group of `size` ranks as number `rank`, on a device. Returns when all have joined.
    pub fn join(_id: &[u8; 128], _rank: u32, _size: u32, _device: u32, _timeout: Option<Duration>) -> Result<Group> {
        Err(todo())
    }

    /// Which rank this is.
    pub fn rank(&self) -> u32 {
        0
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        0
    }

    /// The number of this rank's device.
    pub fn device(&self) -> u32 {
        0
    }

    /// Reduces `count` elements of each rank; every rank gets the result.
    pub fn all_reduce(&self, _: Span, _: Span, _count: u64, _: ElementType, _: ReduceOp, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Reduces `count` elements of each rank; rank `root` gets the result.
    #[allow(clippy::too_many_arguments)]
    pub fn reduce(
        &self,
        _from: Span,
        _to: Span,
        _count: u64,
        _element: ElementType,
        _op: ReduceOp,
        _root: u32,
        _stream: Stream,
    ) -> Result<()> {
        Err(todo())
    }

    /// Gives every rank the `count` elements of rank `root`.
    pub fn broadcast(&self, _: Span, _: Span, _count: u64, _: ElementType, _root: u32, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Gives every rank the `count` elements of each, one after the other.
    pub fn all_gather(&self, _from: Span, _to: Span, _count: u64, _: ElementType, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Reduces `count` elements for each rank, which gets its part of the result.
    pub fn reduce_scatter(&self, _: Span, _: Span, _count: u64, _: ElementType, _: ReduceOp, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Gives every rank `count` elements of each.
    pub fn all_to_all(&self, _from: Span, _to: Span, _count: u64, _: ElementType, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Sends to another rank, which receives.
    pub fn send(&self, _from: Span, _count: u64, _: ElementType, _peer: u32, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Receives what another rank sends.
    pub fn recv(&self, _to: Span, _count: u64, _: ElementType, _peer: u32, _: Stream) -> Result<()> {
        Err(todo())
    }

    /// Sends and receives at once, none waiting for another.
    pub fn exchange(&self, _transfers: &[Transfer], _stream: Stream) -> Result<()> {
        Err(todo())
    }

    /// Gives every process the bytes of each, through the CPU: in the order of ranks.
    pub fn gather_bytes(&self, _mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        Err(todo())
    }

    /// What has broken the group, if anything has.
    pub fn error(&self) -> Option<Error> {
        None
    }

    /// Breaks the group: work of it that waits ends, here and at the other ranks.
    pub fn abort(&self) {}

    /// How long work waits for other ranks from now on; zero is for ever.
    pub fn set_timeout(&self, _timeout: Duration) {}
}

fn todo() -> Error {
    Error::new(Status::NOT_SUPPORTED, "groups of processes are being written")
}
