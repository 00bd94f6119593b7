//! NVRTC, CUDA's runtime compiler, loaded at run time. The interface to its calls, as [`table`](super::table) is for
//! the driver. It needs no device.

pub mod table;

use super::{
    calls::{FunctionTable, library_call},
    image::Image,
    library::{Library, LibrarySpec},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use std::{
    ffi::{CStr, CString, OsStr, c_char, c_int, c_void},
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};
use table::{COMPILATION, Call, Code, ErrorString, RawProgram, SUCCESS, Table};

const LIBRARY: LibrarySpec = LibrarySpec {
    name: "NVRTC",
    variable: "PLINTH_NVRTC_LIBRARY",
    names: &[(13, c"libnvrtc.so.13"), (12, c"libnvrtc.so.12"), (11, c"libnvrtc.so.11.2"), (0, c"libnvrtc.so")],
    in_toolkit: true,
    in_packages: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
};

/// A loaded NVRTC library.
pub struct Nvrtc {
    table: Table,
    error_string: Option<ErrorString>,
    version: (c_int, c_int),
    archs: Vec<c_int>,
    /// The library's folder, if the loader reports an absolute path.
    folder: Option<PathBuf>,
}

/// A compilation request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The source.
    pub source: &'a str,
    /// The name of the source in the log.
    pub name: &'a str,
    /// The options, including the architecture.
    pub options: &'a [String],
    /// Whether the architecture is a real one, so that the result is a cubin and not PTX.
    pub real: bool,
    /// The kernel's name as in the source, including template arguments.
    pub entry: Option<&'a str>,
}

/// The result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// PTX or a cubin.
    pub image: Image,
    /// The lowered (mangled) name of the kernel; empty if none was requested.
    pub lowered: String,
    /// The compiler's log.
    pub log: String,
}

/// Returns the process's NVRTC, and loads it on the first call.
pub fn get() -> Result<&'static Nvrtc> {
    static NVRTC: OnceCell<Nvrtc> = OnceCell::new();
    NVRTC.get_or_try_init(load)
}

#[cold]
fn unavailable(reason: String) -> Error {
    Error::new(Status::COMPILER_UNAVAILABLE, reason)
}

fn load() -> Result<Nvrtc> {
    let library = LIBRARY.find().map_err(unavailable)?;
    // SAFETY: this is NVRTC, which has never changed the signature of a call.
    let (table, missing) = unsafe { Table::from_library(library) };
    if let Some(call) = missing {
        return Err(unavailable(call.too_old(LIBRARY.name)));
    }
    let error_string = library.symbol(c"nvrtcGetErrorString").map(|pointer| {
        // SAFETY: the symbol has this signature in every version.
        unsafe { std::mem::transmute::<*const c_void, ErrorString>(pointer) }
    });
    let mut nvrtc = Nvrtc { table, error_string, version: (0, 0), archs: Vec::new(), folder: None };
    let (mut major, mut minor, mut count) = (0, 0, 0);
    // SAFETY: the outputs are live locals.
    unsafe { library_call!(nvrtc, nvrtcVersion(&mut major, &mut minor)) }?;
    nvrtc.version = (major, minor);
    // SAFETY: the output is a live local.
    unsafe { library_call!(nvrtc, nvrtcGetNumSupportedArchs(&mut count)) }?;
    let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the output has room for as many numbers as the library reported.
    unsafe { library_call!(nvrtc, nvrtcGetSupportedArchs(archs.as_mut_ptr())) }?;
    archs.sort_unstable();
    nvrtc.archs = archs;
    nvrtc.folder = library_folder(table.nvrtcVersion as *const c_void);
    nvrtc.load_builtins();
    Ok(nvrtc)
}

/// Returns the folder of the library that contains a function, if its path is absolute: the program may have loaded it by
/// a relative path, and changed its working directory since.
fn library_folder(function: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the output is a live local, whose fields are set on success. The file name in it belongs to a library
    // that stays loaded.
    unsafe {
        if libc::dladdr(function, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.assume_init_ref().dli_fname);
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        path.parent().filter(|folder| folder.is_absolute()).map(Path::to_owned)
    }
}

impl Nvrtc {
    /// Loads the builtins library from NVRTC's folder. NVRTC opens it by file name only, so it finds the loaded one
    /// wherever it is located.
    fn load_builtins(&self) {
        let (major, minor) = self.version;
        let name = format!("libnvrtc-builtins.so.{major}.{minor}");
        if let Some(folder) = &self.folder
            && folder.join(&name).is_file()
        {
            // If this fails, NVRTC reports it when it compiles.
            let _ = Library::open_path(folder.join(&name).as_os_str());
        }
    }

    /// Returns the major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Returns the supported architectures in CUDA's numbering, oldest first.
    pub fn archs(&self) -> &[i32] {
        &self.archs
    }

    /// Returns the folder of headers that belongs to this NVRTC, if there is one.
    pub fn headers(&self) -> Vec<PathBuf> {
        let Some(folder) = self.folder.as_ref().and_then(|folder| folder.parent()) else { return Vec::new() };
        // A toolkit may store its libraries one folder deeper.
        let mut folders = [folder.join("include"), folder.join("../include")].into_iter();
        let Some(found) = folders.find(|path| path.join("cuda_runtime.h").is_file()) else { return Vec::new() };
        // From CUDA 13 on, the headers that cooperative_groups.h includes are in a folder of their own.
        let libraries = found.join("cccl");
        if libraries.is_dir() { vec![found, libraries] } else { vec![found] }
    }

    fn check(&self, call: Call, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let text = match self.error_string {
            // SAFETY: the call returns a static string for every number.
            Some(error_string) => unsafe { CStr::from_ptr(error_string(code)) }.to_string_lossy().into_owned(),
            None => format!("error {code}"),
        };
        Err(Error::new(Status::COMPILATION_FAILED, format!("{} failed with {text}", call.info().symbol)))
    }

    /// Compiles a source file.
    pub fn compile(&self, request: &Request) -> Result<Compiled> {
        let text = |text: &str, what: &str| {
            CString::new(text).map_err(|_| Error::new(Status::INVALID_VALUE, format!("{what} holds a NUL")))
        };
        let (source, name) = (text(request.source, "the source")?, text(request.name, "the name")?);
        let entry = request.entry.map(|entry| text(entry, "the kernel's name")).transpose()?;
        let options: Vec<CString> =
            request.options.iter().map(|option| text(option, "an option")).collect::<Result<_>>()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the output is a live local, the strings are NUL-terminated, and there are no headers.
        unsafe {
            library_call!(
                self,
                nvrtcCreateProgram(&mut raw, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
            )
        }?;
        let program = Program { nvrtc: self, raw };
        program.compile(entry.as_deref(), &options)?;
        let lowered = entry.map(|entry| program.lowered(&entry)).transpose()?.unwrap_or_default();
        Ok(Compiled { image: program.image(request.real)?, lowered, log: program.log() })
    }
}

/// An NVRTC program, destroyed on drop.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: RawProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is live, and nothing uses it afterwards.
        unsafe { (self.nvrtc.table.nvrtcDestroyProgram)(&mut self.raw) };
    }
}

impl Program<'_> {
    fn compile(&self, entry: Option<&CStr>, options: &[CString]) -> Result<()> {
        let table = &self.nvrtc.table;
        if let Some(entry) = entry {
            // SAFETY: the program is live, and the name NUL-terminated.
            unsafe { library_call!(self.nvrtc, nvrtcAddNameExpression(self.raw, entry.as_ptr())) }?;
        }
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live, and `options` has the stated number of NUL-terminated strings.
        let code = unsafe { (table.nvrtcCompileProgram)(self.raw, options.len() as c_int, options.as_ptr()) };
        match code {
            COMPILATION => Err(Error::new(Status::COMPILATION_FAILED, self.log())),
            _ => self
                .nvrtc
                .check(Call::nvrtcCompileProgram, code)
                .map_err(|error| Error::new(error.status(), format!("{}: {}", error.message(), self.log()))),
        }
    }

    fn log(&self) -> String {
        let (table, mut bytes) = (&self.nvrtc.table, 0);
        // SAFETY: the program is live, and the output a live local.
        if unsafe { (table.nvrtcGetProgramLogSize)(self.raw, &mut bytes) } != SUCCESS {
            return String::new();
        }
        let mut log = vec![0_u8; bytes];
        // SAFETY: the buffer has the size of the log.
        if unsafe { (table.nvrtcGetProgramLog)(self.raw, log.as_mut_ptr().cast()) } != SUCCESS {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }

    fn lowered(&self, entry: &CStr) -> Result<String> {
        let mut name = ptr::null();
        // SAFETY: the program is live and compiled, the name is NUL-terminated, and the output a live local.
        unsafe { library_call!(self.nvrtc, nvrtcGetLoweredName(self.raw, entry.as_ptr(), &mut name)) }?;
        // SAFETY: the call succeeded, so the pointer is a string that lives as long as the program.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    fn image(&self, real: bool) -> Result<Image> {
        let (nvrtc, mut bytes) = (self.nvrtc, 0);
        // SAFETY: the program is live and compiled, and the output a live local.
        unsafe {
            if real {
                library_call!(nvrtc, nvrtcGetCUBINSize(self.raw, &mut bytes))
            } else {
                library_call!(nvrtc, nvrtcGetPTXSize(self.raw, &mut bytes))
            }
        }?;
        let mut image = vec![0_u8; bytes];
        let output = image.as_mut_ptr().cast();
        // SAFETY: the buffer has the size of the image.
        unsafe {
            if real {
                library_call!(nvrtc, nvrtcGetCUBIN(self.raw, output))
            } else {
                library_call!(nvrtc, nvrtcGetPTX(self.raw, output))
            }
        }?;
        // SAFETY: NVRTC filled the buffer with a complete image. Its source declares the parameters of its kernels.
        Ok(unsafe { Image::new(image) })
    }
}
