//! Collectives: over the devices of this process ([`devices`], `torch.cuda.comm`), between the processes of one machine
//! ([`processes`]), and over any ranks ([`communicator`], which selects an engine). [`nccl`] implements
//! `torch.cuda.nccl`, and [`store`] is the key-value store through which ranks exchange what they need for the
//! rendezvous.

pub mod communicator;
pub mod devices;
pub mod nccl;
pub mod processes;
pub mod sleep;
pub mod store;
