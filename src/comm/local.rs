//! Stand-in until the real one is merged.
#![allow(missing_docs)]
use super::ReduceOp;
use crate::{
    driver::Span,
    error::{Error, Result},
    status::Status,
    stream::Stream,
    tensor::ElementType,
};
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub device: u32,
    pub stream: Stream,
    pub from: Span,
    pub to: Span,
}
fn none() -> Result<()> {
    Err(Error::new(Status::NOT_SUPPORTED, "local collectives are not merged yet"))
}
pub fn all_reduce(_: &[Part], _: u64, _: ElementType, _: ReduceOp) -> Result<()> {
    none()
}
pub fn reduce(_: &[Part], _: usize, _: u64, _: ElementType, _: ReduceOp) -> Result<()> {
    none()
}
pub fn broadcast(_: &[Part], _: usize, _: u64, _: ElementType) -> Result<()> {
    none()
}
pub fn all_gather(_: &[Part], _: u64, _: ElementType) -> Result<()> {
    none()
}
pub fn reduce_scatter(_: &[Part], _: u64, _: ElementType, _: ReduceOp) -> Result<()> {
    none()
}
pub fn all_to_all(_: &[Part], _: u64, _: ElementType) -> Result<()> {
    none()
}
