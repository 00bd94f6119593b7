//! NVTX's injection protocol, through which a profiler receives ranges and marks.
//!
//! A tool names its library in `NVTX_INJECTION64_PATH`. A client of NVTX loads that library at its first NVTX call, and
//! calls the library's `InitializeInjectionNvtx2` with a function that returns tables of function slots, by module and
//! index. The tool stores the functions that it implements in the slots; calls with an empty slot are ignored. NVTX's
//! headers (version 3), which define this protocol, do the same in every library that includes them, and a tool
//! receives the calls of all of these clients.

use super::{Stream, environment::Environment, library::Library};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{
        Once,
        atomic::{AtomicPtr, AtomicU8, Ordering},
    },
};

/// The environment variable that names the tool's library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const VERSION: u32 = 3;

/// The number of slots of each module, including the unused slot 0: core, CUDA driver, OpenCL, CUDA runtime, domains,
/// synchronization.
const MODULES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MAX_SLOTS: usize = 16;
const CORE: usize = 1;
const DRIVER: usize = 2;
const DOMAINS: usize = 5;

type Slot = AtomicPtr<c_void>;

static SLOTS: [[Slot; MAX_SLOTS]; MODULES.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SLOTS] }; MODULES.len()];

/// The tables of slot addresses as the tool receives them: a null entry, the module's slots, and a null entry.
struct Tables([[*const Slot; MAX_SLOTS + 1]; MODULES.len()]);

// SAFETY: the pointers refer to statics that consist of atomics.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(tables());

const fn tables() -> [[*const Slot; MAX_SLOTS + 1]; MODULES.len()] {
    let mut tables = [[ptr::null(); MAX_SLOTS + 1]; MODULES.len()];
    let mut module = 0;
    while module < MODULES.len() {
        let mut number = 1;
        while number < MODULES[module] {
            tables[module][number] = &raw const SLOTS[module][number];
            number += 1;
        }
        module += 1;
    }
    tables
}

#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut u32) -> c_int,
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

unsafe extern "C" fn module_table(module: c_int, table: *mut *const *const Slot, size: *mut u32) -> c_int {
    let Some(index) = usize::try_from(module).ok().filter(|index| (1..MODULES.len()).contains(index)) else { return 0 };
    // SAFETY: the tool passes NULL or a valid output pointer, as the protocol requires.
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
const DETACHED: u8 = 1;
const ATTACHED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns whether a tool is attached. Looks for one on the first call.
#[inline]
pub fn listens() -> bool {
    match STATE.load(Ordering::Acquire) {
        DETACHED => false,
        ATTACHED => true,
        _ => attach_once(),
    }
}

/// Returns whether an earlier search found no tool.
#[inline]
pub fn is_silent() -> bool {
    STATE.load(Ordering::Acquire) == DETACHED
}

/// Forgets the result of the search, in a forked child, where nobody may ask for it.
pub fn forget() {
    STATE.store(UNKNOWN, Ordering::Release);
}

#[cold]
fn attach_once() -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| STATE.store(if attach().is_some() { ATTACHED } else { DETACHED }, Ordering::Release));
    STATE.load(Ordering::Acquire) == ATTACHED
}

/// Loads the tool's library, which stays loaded, and lets it fill the slots.
fn attach() -> Option<()> {
    let path = Environment::of_process().value(VARIABLE)?;
    let path = CString::new(path.into_encoded_bytes()).ok()?;
    let library = Library::open_lazily(&path).ok()?;
    let symbol = library.symbol(c"InitializeInjectionNvtx2")?;
    // SAFETY: the protocol defines this signature for the symbol, and the user who set the variable guarantees the
    // library.
    let accepted = unsafe { std::mem::transmute::<*const c_void, Initialize>(symbol)(export_table) };
    if accepted == 0 {
        // A tool that fails to initialize may have filled slots already. They must not be called.
        SLOTS.iter().flatten().for_each(|slot| slot.store(ptr::null_mut(), Ordering::Relaxed));
    }
    (accepted != 0).then_some(())
}

/// The attributes of a mark or a range, in NVTX's layout.
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

/// The annotation of a mark or a range.
#[derive(Debug, Clone, Copy)]
pub struct Annotation<'a> {
    /// Its text.
    pub message: &'a CStr,
    /// The id of its category in the domain; 0 for none.
    pub category: u32,
    /// Its color as 0xAARRGGBB, if it has one.
    pub color: Option<u32>,
    /// Its numeric payload, if it has one.
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

/// A domain of the tool: a namespace for categories and ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain(*mut c_void);

impl Domain {
    /// The default domain.
    pub const DEFAULT: Domain = Domain(ptr::null_mut());

    /// Wraps a domain pointer.
    ///
    /// # Safety
    /// The pointer is NULL, or came from [`create`](Self::create) and was not destroyed since.
    pub unsafe fn from_raw(pointer: *mut c_void) -> Self {
        Domain(pointer)
    }

    /// Returns the pointer.
    pub fn raw(self) -> *mut c_void {
        self.0
    }
}

/// Returns the function that the tool stored in a slot, if there is one.
macro_rules! function {
    ($module:ident, $number:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {{
        let pointer = SLOTS[$module][$number].load(Ordering::Relaxed);
        // SAFETY: the protocol requires the tool to store a function of this signature in this slot.
        (!pointer.is_null()).then(|| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(pointer)
        })
    }};
}

impl Domain {
    /// Creates a domain; returns the default one if no tool is attached.
    pub fn create(name: &CStr) -> Domain {
        match function!(DOMAINS, 12, fn(*const c_char) -> *mut c_void) {
            // SAFETY: the tool's function takes a NUL-terminated string.
            Some(create) if listens() => Domain(unsafe { create(name.as_ptr()) }),
            _ => Domain::DEFAULT,
        }
    }

    /// Destroys a domain.
    pub fn destroy(self) {
        if self != Domain::DEFAULT
            && let Some(destroy) = function!(DOMAINS, 14, fn(*mut c_void))
        {
            // SAFETY: a domain comes from the tool, and its owner does not use it after this call.
            unsafe { destroy(self.0) }
        }
    }

    /// Names a category of the domain.
    pub fn name_category(self, category: u32, name: &CStr) {
        if let Some(call) = function!(DOMAINS, 8, fn(*mut c_void, u32, *const c_char)) {
            // SAFETY: the domain is NULL or comes from the tool, and the name is NUL-terminated.
            unsafe { call(self.0, category, name.as_ptr()) }
        } else if let Some(call) = self.of_default(function!(CORE, 12, fn(u32, *const c_char))) {
            // SAFETY: the name is NUL-terminated.
            unsafe { call(category, name.as_ptr()) }
        }
    }

    /// Marks a moment.
    pub fn mark(self, annotation: &Annotation) {
        if let Some(call) = function!(DOMAINS, 1, fn(*mut c_void, *const Attributes)) {
            // SAFETY: the domain is NULL or comes from the tool, and the attributes and their text live for the call.
            unsafe { call(self.0, &annotation.attributes()) }
        } else if let Some(call) = self.of_default(function!(CORE, 1, fn(*const Attributes))) {
            // SAFETY: the attributes and their text live for the call.
            unsafe { call(&annotation.attributes()) }
        } else if let Some(call) = self.of_default(function!(CORE, 2, fn(*const c_char))) {
            // SAFETY: the text lives for the call.
            unsafe { call(annotation.message.as_ptr()) }
        }
    }

    /// Starts a range that may end in another thread. Returns its id; 0 if no tool handles ranges.
    pub fn range_start(self, annotation: &Annotation) -> u64 {
        if let Some(call) = function!(DOMAINS, 2, fn(*mut c_void, *const Attributes) -> u64) {
            // SAFETY: as for a mark.
            unsafe { call(self.0, &annotation.attributes()) }
        } else if let Some(call) = self.of_default(function!(CORE, 4, fn(*const Attributes) -> u64)) {
            // SAFETY: as for a mark.
            unsafe { call(&annotation.attributes()) }
        } else if let Some(call) = self.of_default(function!(CORE, 5, fn(*const c_char) -> u64)) {
            // SAFETY: as for a mark.
            unsafe { call(annotation.message.as_ptr()) }
        } else {
            0
        }
    }

    /// Ends a range.
    pub fn range_end(self, range: u64) {
        if let Some(call) = function!(DOMAINS, 3, fn(*mut c_void, u64)) {
            // SAFETY: the domain is NULL or comes from the tool, which looks the range up by its id.
            unsafe { call(self.0, range) }
        } else if let Some(call) = self.of_default(function!(CORE, 7, fn(u64))) {
            // SAFETY: the tool looks the range up by its id.
            unsafe { call(range) }
        }
    }

    /// Pushes a range on the thread's stack of ranges. Returns its depth, if the tool reports it.
    pub fn range_push(self, annotation: &Annotation) -> Option<i32> {
        let depth = if let Some(call) = function!(DOMAINS, 4, fn(*mut c_void, *const Attributes) -> c_int) {
            // SAFETY: as for a mark.
            unsafe { call(self.0, &annotation.attributes()) }
        } else if let Some(call) = self.of_default(function!(CORE, 8, fn(*const Attributes) -> c_int)) {
            // SAFETY: as for a mark.
            unsafe { call(&annotation.attributes()) }
        } else {
            let call = self.of_default(function!(CORE, 9, fn(*const c_char) -> c_int))?;
            // SAFETY: as for a mark.
            unsafe { call(annotation.message.as_ptr()) }
        };
        (depth >= 0).then_some(depth)
    }

    /// Pops the innermost range. Returns its depth, if the tool reports it.
    pub fn range_pop(self) -> Option<i32> {
        let depth = if let Some(call) = function!(DOMAINS, 5, fn(*mut c_void) -> c_int) {
            // SAFETY: the domain is NULL or comes from the tool.
            unsafe { call(self.0) }
        } else {
            let call = self.of_default(function!(CORE, 11, fn() -> c_int))?;
            // SAFETY: the function has no arguments.
            unsafe { call() }
        };
        (depth >= 0).then_some(depth)
    }

    /// Returns a function without a domain, which stands for the default one: a tool need not have those with domains.
    fn of_default<T>(self, function: Option<T>) -> Option<T> {
        function.filter(|_| self == Domain::DEFAULT)
    }
}

/// The description of named memory, in NVTX's layout.
#[repr(C)]
struct ResourceAttributes {
    version: u16,
    size: u16,
    identifier_type: i32,
    identifier: u64,
    message_type: i32,
    message: *const c_char,
}

/// NVTX_RESOURCE_TYPE_GENERIC_POINTER.
const GENERIC_POINTER: i32 = 0x1_0001;

/// The tool's record of a named object, which ends when this is dropped.
#[derive(Debug)]
pub struct Resource(*mut c_void);

// SAFETY: the pointer is the tool's, which takes it from any thread; it is never dereferenced here.
unsafe impl Send for Resource {}

impl Resource {
    /// Names the memory at an address, if the tool records resources.
    pub fn of_memory(address: u64, name: &CStr) -> Option<Resource> {
        let create = function!(DOMAINS, 6, fn(*mut c_void, *const ResourceAttributes) -> *mut c_void)?;
        let attributes = ResourceAttributes {
            version: VERSION as u16,
            size: size_of::<ResourceAttributes>() as u16,
            identifier_type: GENERIC_POINTER,
            identifier: address,
            message_type: 1,
            message: name.as_ptr(),
        };
        // SAFETY: the default domain is NULL, and the attributes and their text live for the call.
        let resource = unsafe { create(ptr::null_mut(), &attributes) };
        (!resource.is_null()).then_some(Resource(resource))
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        if let Some(destroy) = function!(DOMAINS, 7, fn(*mut c_void)) {
            // SAFETY: the record comes from the tool, and nothing uses it after this call.
            unsafe { destroy(self.0) }
        }
    }
}

/// Names a stream.
pub fn name_stream(stream: Stream, name: &CStr) {
    if let Some(call) = function!(DRIVER, 5, fn(*mut c_void, *const c_char)) {
        // SAFETY: a tool stores the handle, which is that of a live stream, and the name is NUL-terminated.
        unsafe { call(stream.handle() as *mut c_void, name.as_ptr()) }
    }
}

/// Names the calling thread.
pub fn name_thread(name: &CStr) {
    if let Some(call) = function!(CORE, 14, fn(u32, *const c_char)) {
        // SAFETY: the calling thread has an id, and the name is NUL-terminated.
        unsafe { call(libc::gettid() as u32, name.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_layout_matches_nvtx() {
        assert_eq!((size_of::<Attributes>(), std::mem::offset_of!(Attributes, payload)), (48, 24));
        assert_eq!(std::mem::offset_of!(Attributes, message), 40);
        assert_eq!((size_of::<ResourceAttributes>(), std::mem::offset_of!(ResourceAttributes, message)), (32, 24));
    }

    #[test]
    fn tables_refer_to_every_slot_but_the_first() {
        for (module, count) in MODULES.iter().enumerate().skip(1) {
            let (mut table, mut size) = (ptr::null(), 0);
            // SAFETY: both outputs are live locals.
            assert_eq!(unsafe { module_table(module as c_int, &mut table, &mut size) }, 1);
            assert_eq!(size as usize, *count);
            // SAFETY: a table has one more entry than its size, and a null entry in front.
            let entries = unsafe { std::slice::from_raw_parts(table, *count + 1) };
            assert!(entries[0].is_null() && entries[*count].is_null());
            for (number, entry) in entries.iter().enumerate().take(*count).skip(1) {
                assert_eq!(*entry, &raw const SLOTS[module][number]);
            }
        }
        for module in [-1, 0, 7] {
            // SAFETY: NULL outputs are allowed.
            assert_eq!(unsafe { module_table(module, ptr::null_mut(), ptr::null_mut()) }, 0);
        }
    }
}
