//! What the checks of a kernel know of its shared memory: its variables, which are thread-local ones of its library.

use object::{LittleEndian, Object, ObjectSymbol, SymbolKind, read::elf::ElfFile64};
use std::{
    ffi::{CString, c_char, c_uint},
    ptr,
};

/// The namespace of the headers, whose own thread-local variables are not the kernel's.
const OWN: [&str; 2] = ["_ZN11plinth_host", "_ZZN11plinth_host"];
const ANCHOR: &str = "_ZN11plinth_hostL13shared_anchorE";
/// The start of the name of a variable that says whether another is initialized.
const GUARD: &str = "_ZGV";
/// The most bytes that dynamic shared memory has, and the bytes of one byte's history: `sizeof(ByteHistory)`.
const MAX_DYNAMIC: usize = 256 << 10;
const HISTORY: usize = 32;

/// `plinth_host::SharedVariable` of `kernels/host/plinth_host/checks.h`.
#[repr(C)]
struct Variable {
    offset: c_uint,
    bytes: c_uint,
    /// Null for a variable that the kernel does not know of.
    name: *const c_char,
}

/// `plinth_host::SharedMemory` of `kernels/host/plinth_host/checks.h`.
#[repr(C)]
pub struct SharedMemory {
    anchor: c_uint,
    count: c_uint,
    variables: *const Variable,
    /// The size of the histories of all bytes.
    history_bytes: usize,
}

// SAFETY: nothing writes to it or to what it points to, which is never freed.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Returns the shared memory of a kernel's library; it is never freed, as the library.
    pub fn of(image: &[u8]) -> Option<&'static SharedMemory> {
        let file = ElfFile64::<LittleEndian>::parse(image).ok()?;
        let mut anchor = 0;
        let mut variables = Vec::new();
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Tls && !symbol.is_undefined()) {
            let name = symbol.name().ok()?;
            let offset = c_uint::try_from(symbol.address()).ok()?;
            if name == ANCHOR {
                anchor = offset;
                continue;
            }
            let is_shared = !OWN.iter().any(|own| name.starts_with(own)) && !name.starts_with(GUARD);
            let name = if is_shared { CString::new(identifier(name)).ok()?.into_raw() } else { ptr::null_mut() };
            variables.push(Variable { offset, bytes: c_uint::try_from(symbol.size()).ok()?, name });
        }
        variables.sort_by_key(|variable| variable.offset);
        // Names of dynamic shared memory are different names of the same bytes.
        variables.dedup_by_key(|variable| variable.offset);
        let first = variables.first().map_or(0, |variable| variable.offset as usize);
        let end = variables.last().map_or(0, |variable| variable.offset as usize + variable.bytes as usize);
        let variables = variables.leak();
        Some(Box::leak(Box::new(SharedMemory {
            anchor,
            count: variables.len() as c_uint,
            variables: variables.as_ptr(),
            history_bytes: (end - first + MAX_DYNAMIC) * HISTORY,
        })))
    }

    /// Returns the size of the histories of all bytes.
    pub fn history_bytes(&self) -> usize {
        self.history_bytes
    }
}

/// Returns the last identifier of a mangled name, such as `tile` of `_ZZ4copyPfE4tile_0`.
fn identifier(name: &str) -> &str {
    let is_identifier = |at: usize| {
        let rest = &name[at..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length: usize = rest[..digits].parse().ok()?;
        let found = rest[digits..].get(..length)?;
        (found.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && matches!(rest.as_bytes().get(digits + length), None | Some(b'_' | b'E')))
        .then_some(found)
    };
    if !name.starts_with("_Z") {
        return name;
    }
    (0..name.len()).rev().filter(|at| name.is_char_boundary(*at)).find_map(is_identifier).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_mangled_names() {
        for (name, found) in [
            ("room", "room"),
            ("_ZZ4copyPfE4tile", "tile"),
            ("_ZZ4copyPfE4tile_0", "tile"),
            ("_ZZN4inner5scaleIfLi16EEEvPT_E6values", "values"),
            ("_ZN5outer4roomE", "room"),
        ] {
            assert_eq!(identifier(name), found, "{name}");
        }
    }
}
