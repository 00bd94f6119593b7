//! Rules for stepping from a function to its caller, from the unwinding information that compilers emit for
//! exceptions.

use super::images::{self, Image};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Operation, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection, X86_64,
};

/// The value from which the caller's stack pointer is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Base {
    /// None: the stack ends here, or the rule is unknown.
    End,
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
    /// The word in memory at the frame pointer plus the offset.
    AtFrame,
}

/// The rule for a return address. It takes 8 bytes, so that a cache entry with the address takes 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// The offset from the base to the canonical frame address; the return address lies below that.
    pub offset: i32,
    /// The offset from the canonical frame address to the caller's saved frame pointer; 0 if that is still in its
    /// register.
    pub frame: i16,
    /// See [`Base`].
    pub base: Base,
}

impl Rule {
    /// The rule that ends a walk.
    pub const END: Rule = Rule { offset: 0, frame: 0, base: Base::End };
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Returns the rule for an instruction; [`Rule::END`] if there is none that this walker can follow.
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
    // Any other rule marks the end of a stack, or handwritten assembly.
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
        CfaRule::Expression(expression) => (Base::AtFrame, at_frame_offset(expression.get(&rules).ok()?)?),
        CfaRule::RegisterAndOffset { .. } => return None,
    };
    Some(Rule { offset: i32::try_from(offset).ok()?, frame, base })
}

/// Returns the offset of an expression of the form "the word at the frame pointer plus an offset". Compilers emit it
/// for functions that realign their stack.
fn at_frame_offset(expression: gimli::Expression<Slice>) -> Option<i64> {
    let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 4, address_size: 8 };
    let mut operations = expression.operations(encoding);
    let Ok(Some(Operation::RegisterOffset { register: X86_64::RBP, offset, .. })) = operations.next() else {
        return None;
    };
    let Ok(Some(Operation::Deref { size: 8, .. })) = operations.next() else { return None };
    matches!(operations.next(), Ok(None)).then_some(offset)
}
