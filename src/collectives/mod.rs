//! Collectives: over the devices of this process ([`devices`], `torch.cuda.comm`), between processes of this machine
//! ([`processes`]), and over ranks anywhere ([`communicator`], which chooses an engine); [`nccl`] are NCCL's own calls, and
//! [`store`] is where ranks exchange what they need to meet.

pub mod communicator;
pub mod devices;
pub mod nccl;
pub mod processes;
pub mod store;
