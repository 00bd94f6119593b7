//! NVTX's protocol: how a profiler hears of ranges and marks.
//!
//! A tool that wants to hear names a library in `NVTX_INJECTION64_PATH`. Whoever speaks NVTX loads that library when
//! it has something to say for the first time, and calls its `InitializeInjectionNvtx2` with a function that gives away
//! tables: of places for functions, by module and number. The tool writes the functions that it wants called into the
//! places, and a place that stays empty is a call that nobody wants. NVTX's headers (version 3), which define this, do the
//! same in every library that includes them, and a tool listens to all of these speakers.

use super::library::Library;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{
        Once,
        atomic::{AtomicPtr, AtomicU8, Ordering},
    },
};

/// The variable by which tools name their library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const VERSION: u32 = 3;

/// How many places each module has, with the one of number 0 that none uses: the core, CUDA's driver, OpenCL, CUDA's
/// runtime, the domains, synchronization.
const MODULES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;
const CORE: usize = 1;
const DOMAINS: usize = 5;

type Place = AtomicPtr<c_void>;

static PLACES: [[Place; MOST]; MODULES.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MOST] }; MODULES.len()];

/// The tables of addresses of places, as the tool gets them: an empty one, those of the module, and an empty one.
struct Tables([[*const Place; MOST + 1]; MODULES.len()]);

// SAFETY: what the pointers lead to are statics of atomics.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(tables());

const fn tables() -> [[*const Place; MOST + 1]; MODULES.len()] {
    let mut tables = [[ptr::null(); MOST + 1]; MODULES.len()];
    let mut module = 0;
    while module < MODULES.len() {
        let mut number = 1;
        while number < MODULES[module] {
            tables[module][number] = &raw const PLACES[module][number];
            number += 1;
        }
        module += 1;
    }
    tables
}

#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: unsafe extern "C" fn(c_int, *mut *const *const Place, *mut u32) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), module_table };
static VERSION_INFO: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION, reserved: 0, set_tool_version };

unsafe extern "C" fn module_table(module: c_int, table: *mut *const *const Place, size: *mut u32) -> c_int {
    let Some(index) = usize::try_from(module).ok().filter(|index| (1..MODULES.len()).contains(index)) else { return 0 };
    // SAFETY: the tool passes NULL or a place for the answer, as the protocol asks of it.
    unsafe {
        if !size.is_null() {
            size.write(MODULES[index] as u32);
        }
        if !table.is_null() {
            table.write(TABLES.0[index].as_ptr());
        }
    }
    1
}

extern "C" fn set_tool_version(_version: u32) {}

unsafe extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}

type ExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(ExportTable) -> c_int;

const UNKNOWN: u8 = 0;
const NOBODY: u8 = 1;
const TOOL: u8 = 2;
static LISTENER: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether a tool listens. Looks for one the first time.
#[inline]
pub fn listens() -> bool {
    match LISTENER.load(Ordering::Acquire) {
        NOBODY => false,
        TOOL => true,
        _ => look(),
    }
}

/// Whether it is known that no tool listens: it was looked for, and not found.
#[inline]
pub fn is_silent() -> bool {
    LISTENER.load(Ordering::Acquire) == NOBODY
}

#[cold]
fn look() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| LISTENER.store(if attach().is_some() { TOOL } else { NOBODY }, Ordering::Release));
    LISTENER.load(Ordering::Acquire) == TOOL
}

/// Loads the tool's library, which stays loaded, and lets it fill in the places.
fn attach() -> Option<()> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
    let path = CString::new(path.into_encoded_bytes()).ok()?;
    let library = Library::open_lazily(&path).ok()?;
    let symbol = library.symbol(c"InitializeInjectionNvtx2")?;
    // SAFETY: under this name the protocol has a function of this signature, which the variable's author vouched for.
    let accepted = unsafe { std::mem::transmute::<*const c_void, Initialize>(symbol)(export_table) };
    if accepted == 0 {
        // What it may have written before it gave up must not be called.
        PLACES.iter().flatten().for_each(|place| place.store(ptr::null_mut(), Ordering::Relaxed));
    }
    (accepted != 0).then_some(())
}

/// What a tool is told of a mark or a range, in NVTX's layout.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

/// A mark, or what a range begins with.
#[derive(Debug, Clone, Copy)]
pub struct Annotation<'a> {
    /// Its text.
    pub message: &'a CStr,
    /// The number of its category in the domain; 0 for none.
    pub category: u32,
    /// Its colour as 0xAARRGGBB, where it has one.
    pub color: Option<u32>,
    /// A number that goes with it, where there is one.
    pub payload: Option<i64>,
}

impl Annotation<'_> {
    fn attributes(&self) -> Attributes {
        Attributes {
            version: VERSION as u16,
            size: size_of::<Attributes>() as u16,
            category: self.category,
            color_type: i32::from(self.color.is_some()),
            color: self.color.unwrap_or(0),
            payload_type: if self.payload.is_some() { 2 } else { 0 },
            reserved: 0,
            payload: self.payload.unwrap_or(0) as u64,
            message_type: 1,
            message: self.message.as_ptr(),
        }
    }
}

/// A domain of a tool's: a name space for categories and ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain(*mut c_void);

impl Domain {
    /// The domain of those who name none.
    pub const DEFAULT: Domain = Domain(ptr::null_mut());

    /// A domain by the pointer that a program has of it.
    ///
    /// # Safety
    /// The pointer is NULL, or one that [`create`](Self::create) gave and that was not destroyed since.
    pub unsafe fn from_raw(pointer: *mut c_void) -> Self {
        Domain(pointer)
    }

    /// The pointer.
    pub fn raw(self) -> *mut c_void {
        self.0
    }
}

/// The function that the tool put in a place, if it put one there.
macro_rules! function {
    ($module:ident, $number:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {{
        let pointer = PLACES[$module][$number].load(Ordering::Relaxed);
        // SAFETY: whoever fills this place puts a function of this signature there: so the protocol says.
        (!pointer.is_null()).then(|| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(pointer)
        })
    }};
}

impl Domain {
    /// Makes a domain; the default one where no tool cares.
    pub fn create(name: &CStr) -> Domain {
        match function!(DOMAINS, 12, fn(*const c_char) -> *mut c_void) {
            // SAFETY: the tool's function takes a NUL-terminated text.
            Some(create) if listens() => Domain(unsafe { create(name.as_ptr()) }),
            _ => Domain::DEFAULT,
        }
    }

    /// Destroys one.
    pub fn destroy(self) {
        if self != Domain::DEFAULT
            && let Some(destroy) = function!(DOMAINS, 14, fn(*mut c_void))
        {
            // SAFETY: a domain comes from the tool, and its owner forgets it with this call.
            unsafe { destroy(self.0) }
        }
    }

    /// Gives a category of the domain a name.
    pub fn name_category(self, category: u32, name: &CStr) {
        if let Some(call) = function!(DOMAINS, 8, fn(*mut c_void, u32, *const c_char)) {
            // SAFETY: the domain is NULL or the tool's, and the name is NUL-terminated.
            unsafe { call(self.0, category, name.as_ptr()) }
        }
    }

    /// Tells of a moment.
    pub fn mark(self, annotation: &Annotation) {
        if let Some(call) = function!(DOMAINS, 1, fn(*mut c_void, *const Attributes)) {
            // SAFETY: the domain is NULL or the tool's, and the attributes and their text live for the call.
            unsafe { call(self.0, &annotation.attributes()) }
        }
    }

    /// Begins a range that may end in another thread; its number, 0 where no tool wants to know.
    pub fn range_start(self, annotation: &Annotation) -> u64 {
        match function!(DOMAINS, 2, fn(*mut c_void, *const Attributes) -> u64) {
            // SAFETY: as for a mark.
            Some(call) => unsafe { call(self.0, &annotation.attributes()) },
            None => 0,
        }
    }

    /// Ends it.
    pub fn range_end(self, range: u64) {
        if let Some(call) = function!(DOMAINS, 3, fn(*mut c_void, u64)) {
            // SAFETY: the domain is NULL or the tool's; to the tool a range is a number that it looks up.
            unsafe { call(self.0, range) }
        }
    }

    /// Begins a range in the thread's nest of them: how deep it lies, where the tool tells.
    pub fn range_push(self, annotation: &Annotation) -> Option<i32> {
        let call = function!(DOMAINS, 4, fn(*mut c_void, *const Attributes) -> c_int)?;
        // SAFETY: as for a mark.
        Some(unsafe { call(self.0, &annotation.attributes()) }).filter(|depth| *depth >= 0)
    }

    /// Ends the innermost: how deep it lay, where the tool tells.
    pub fn range_pop(self) -> Option<i32> {
        let call = function!(DOMAINS, 5, fn(*mut c_void) -> c_int)?;
        // SAFETY: the domain is NULL or the tool's.
        Some(unsafe { call(self.0) }).filter(|depth| *depth >= 0)
    }
}

/// Gives the calling thread a name.
pub fn name_thread(name: &CStr) {
    if let Some(call) = function!(CORE, 14, fn(u32, *const c_char)) {
        // SAFETY: the calling thread has a number, and the name is NUL-terminated.
        unsafe { call(libc::gettid() as u32, name.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_nvtxs() {
        assert_eq!((size_of::<Attributes>(), std::mem::offset_of!(Attributes, payload)), (48, 24));
        assert_eq!(std::mem::offset_of!(Attributes, message), 40);
    }

    #[test]
    fn tables_lead_to_every_place_but_the_first() {
        for (module, count) in MODULES.iter().enumerate().skip(1) {
            let (mut table, mut size) = (ptr::null(), 0);
            // SAFETY: both outputs are live locals.
            assert_eq!(unsafe { module_table(module as c_int, &mut table, &mut size) }, 1);
            assert_eq!(size as usize, *count);
            // SAFETY: a table has one more entry than its size says, and the empty one in front.
            let entries = unsafe { std::slice::from_raw_parts(table, *count + 1) };
            assert!(entries[0].is_null() && entries[*count].is_null());
            for (number, entry) in entries.iter().enumerate().take(*count).skip(1) {
                assert_eq!(*entry, &raw const PLACES[module][number]);
            }
        }
        for module in [-1, 0, 7] {
            // SAFETY: NULL outputs are allowed.
            assert_eq!(unsafe { module_table(module, ptr::null_mut(), ptr::null_mut()) }, 0);
        }
    }
}
