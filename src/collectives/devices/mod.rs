//! Collectives over the devices of this process: `torch.cuda.comm`, and what communicators of one process are made of.
//!
//! One process that has all the devices needs no protocol between them. A stream of one device waits by events for the
//! current streams of all that take part ([`stream_group`]), one launch there reads every source and writes every destination
//! over the links between the devices, and the others wait for it. What a launch is to do comes with it, as a table of
//! [`chunks`]: hundreds of tensors need no more launches than a few, and nothing is allocated, copied or flattened before.
//! From some size on ([`tuning`]) all devices share the work, so that no link carries a message twice ([`large`]). Where
//! devices cannot reach each other's memory ([`reach`]), the driver's copies bring it to them.
//!
//! [`local`] are the collectives over ranks; [`broadcast`], [`reduce`] and [`exchange`] torch's functions over tensors of
//! any shape, whose elements [`strided_copies`] finds wherever they lie, [`host`] also in memory of the CPU; [`outputs`] makes the
//! tensors that a caller wants made.
//!
//! [`shared`] is for the processes of one machine.

pub mod broadcast;
pub mod chunks;
pub mod exchange;
pub mod host;
pub mod large;
pub mod local;
pub mod outputs;
pub mod reduce;
pub mod stream_group;
pub mod strided_copies;
pub mod tuning;

/// What a reduction does with two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOp {
    /// Their sum; of bools, whether one is true.
    Sum,
    /// Their product; of bools, whether both are true.
    Product,
    /// The lesser one; a number, where one of them is NaN.
    Minimum,
    /// The greater one, likewise.
    Maximum,
    /// The sum of all, divided by how many they are; of integers, towards 0.
    Average,
}
