//! The variables of a kernel in shared memory, which are thread-local ones of its library.

use crate::cuda_kernel;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind,
    read::elf::{ElfFile64, ElfSymbol64},
};
use std::{
    collections::HashSet,
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

/// Returns the size of a kernel's static shared memory in bytes: of the variables that it and the functions that it may call
/// use. `object` is the kernel as an object file, in which each function and variable has a section of its own.
pub fn static_bytes(object: &[u8]) -> u64 {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(object) else { return 0 };
    let section_of = |symbol: ElfSymbol64<'_, '_, LittleEndian>| symbol.section_index();
    let entry = cuda_kernel::SYMBOL.to_bytes();
    let mut next: Vec<_> =
        file.symbols().filter(|symbol| symbol.name_bytes() == Ok(entry)).filter_map(section_of).collect();
    let mut reached = HashSet::new();
    while let Some(index) = next.pop() {
        if let Ok(section) = file.section_by_index(index)
            && reached.insert(index)
        {
            next.extend(section.relocations().filter_map(|(_, relocation)| match relocation.target() {
                RelocationTarget::Symbol(symbol) => file.symbol_by_index(symbol).ok().and_then(section_of),
                _ => None,
            }));
        }
    }
    file.symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Tls && symbol.name().is_ok_and(is_of_kernel))
        .filter(|symbol| symbol.section_index().is_some_and(|section| reached.contains(&section)))
        .map(|symbol| symbol.size())
        .sum()
}

/// Returns whether a thread-local variable is one in shared memory.
fn is_of_kernel(name: &str) -> bool {
    !OWN.iter().any(|own| name.starts_with(own)) && !name.starts_with(GUARD)
}

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
            let name =
                if is_of_kernel(name) { CString::new(identifier(name)).ok()?.into_raw() } else { ptr::null_mut() };
            variables.push(Variable { offset, bytes: c_uint::try_from(symbol.size()).ok()?, name });
        }
        variables.sort_by_cached_key(|variable| u64::from(variable.offset));
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

    /// Compiles C++ to an object as kernels are compiled.
    fn object_of(source: &str) -> Vec<u8> {
        let folder = crate::driver::temporary::folder().unwrap();
        let (text, object) = (folder.path().join("kernel.cpp"), folder.path().join("kernel.o"));
        std::fs::write(&text, source).unwrap();
        let status = std::process::Command::new("c++")
            .args(["-std=c++17", "-O2", "-fPIC", "-ffunction-sections", "-fdata-sections", "-c", "-o"])
            .args([&object, &text])
            .status();
        assert!(status.unwrap().success());
        std::fs::read(object).unwrap()
    }

    #[test]
    fn static_shared_memory_is_that_of_the_variables_that_the_kernel_uses() {
        let source = |body: &str| {
            let symbol = cuda_kernel::SYMBOL.to_str().unwrap();
            format!(
                "namespace plinth_host {{ thread_local int own[8]; }}\n\
                 thread_local float tile[100]; thread_local char flags[3]; thread_local double unused[7];\n\
                 extern thread_local int dynamic[];\n\
                 __attribute__((noinline)) void *other() {{ return flags; }}\n\
                 void *third() {{ return unused; }}\n\
                 void *run(int at) {{ {body} }}\n\
                 extern \"C\" {{ void *(*{symbol})(int) = run; }}"
            )
        };
        for (body, bytes) in [
            ("return nullptr;", 0),
            ("return tile + at;", 400),
            ("return at ? static_cast<void *>(tile) : other();", 403),
            ("static thread_local short local[5]; return local + at;", 10),
            ("return plinth_host::own + at;", 0),
            ("return dynamic + at;", 0),
        ] {
            assert_eq!(static_bytes(&object_of(&source(body))), bytes, "{body}");
        }
        assert_eq!(static_bytes(b"no object"), 0);
    }

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
