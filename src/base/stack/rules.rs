//! How to get from a function to its caller: the compilers write it down for every instruction, for exceptions' sake.

use super::images::{self, Image};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Operation, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection, X86_64,
};

/// What the caller's stack pointer is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Base {
    /// Nothing: the stack ends here, or nobody knows.
    End,
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
    /// What lies where the frame pointer and the offset lead.
    BehindFrame,
}

/// The rule for a return address. It takes 8 bytes, so that with its address it takes 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// What is added to the base. The return address lies below the sum.
    pub offset: i32,
    /// Where, from the sum, the caller's frame pointer lies; 0 if it is still in its register.
    pub frame: i16,
    /// See [`Base`].
    pub base: Base,
}

impl Rule {
    /// The stack ends here.
    pub const END: Rule = Rule { offset: 0, frame: 0, base: Base::End };
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The rule for an instruction, [`Rule::END`] where there is none that can be followed.
#[cold]
pub(super) fn rule(address: u64) -> Rule {
    images::find(address, |image| read(image, address)).flatten().unwrap_or(Rule::END)
}

fn read(image: &Image, address: u64) -> Option<Rule> {
    let (index, index_address) = image.rules_index()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(index_address);
    let index = EhFrameHdr::new(index, LittleEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(start) = index.eh_frame_ptr() else { return None };
    let bases = bases.set_eh_frame(start);
    let rules = EhFrame::new(image.rules(start)?, LittleEndian);
    let mut context = UnwindContext::new();
    let row =
        index.table()?.unwind_info_for_address(&rules, &bases, &mut context, address, EhFrame::cie_from_offset).ok()?;
    let saved = |register: Register| match row.register(register) {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => None,
    };
    // Everything else is the end of a stack, or code that was written by hand.
    if saved(X86_64::RA) != Some(-8) {
        return None;
    }
    let frame = match row.register(X86_64::RBP) {
        Some(RegisterRule::Offset(offset)) => i16::try_from(offset).ok().filter(|offset| *offset != 0)?,
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
        _ => return None,
    };
    let (base, offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RSP => (Base::Stack, *offset),
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RBP => (Base::Frame, *offset),
        CfaRule::Expression(expression) => (Base::BehindFrame, behind_frame(expression.get(&rules).ok()?)?),
        CfaRule::RegisterAndOffset { .. } => return None,
    };
    Some(Rule { offset: i32::try_from(offset).ok()?, frame, base })
}

/// The offset of an expression that says "what lies at the frame pointer and an offset": so do functions that align their
/// stack anew.
fn behind_frame(expression: gimli::Expression<Slice>) -> Option<i64> {
    let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 4, address_size: 8 };
    let mut operations = expression.operations(encoding);
    let Ok(Some(Operation::RegisterOffset { register: X86_64::RBP, offset, .. })) = operations.next() else {
        return None;
    };
    let Ok(Some(Operation::Deref { size: 8, .. })) = operations.next() else { return None };
    matches!(operations.next(), Ok(None)).then_some(offset)
}
