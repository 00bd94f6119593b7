//! A macro that builds the table of a library's calls: each line names a call once.
//!
//! ```text
//! calls! {
//!     Code, ABSENT;
//!     required 20000 ncclGetVersion(version: *mut c_int);
//!     optional 22800 ncclAlltoAll(...);
//! }
//! ```
//!
//! `Code` is the return type of each call. `ABSENT` is the code that the stub of a missing call returns. The macro
//! defines, in the module that invokes it: `Table`, the struct of function pointers, none of them null; `Call`, the
//! enumeration of the calls; and `CALLS`, the list as data.

use crate::library::Library;
use std::ffi::{CStr, c_int};

/// One line of a table, as data.
#[derive(Debug, Clone, Copy)]
pub struct CallInfo {
    /// The exported symbol, with its `_v2`-like suffix, as passed to `dlsym`.
    pub symbol: &'static str,
    /// The same as a C string.
    pub c_symbol: &'static CStr,
    /// The version that introduced the call, in the library's encoding: 12000 is CUDA 12.0, 21800 is NCCL 2.18.0.
    pub since: c_int,
    /// Whether plinth requires the call. A library without it is too old.
    pub required: bool,
}

impl CallInfo {
    /// Returns the symbol without its version suffix.
    pub fn base_name(&self) -> &'static str {
        let end = self.symbol.len().saturating_sub(3);
        match self.symbol.get(end..) {
            Some("_v2" | "_v3") => &self.symbol[..end],
            _ => self.symbol,
        }
    }

    /// Says that a library of the CUDA toolkit lacks the call.
    pub(crate) fn too_old(&self, library: &str) -> String {
        let (symbol, major, minor) = (self.symbol, self.since / 1000, self.since % 1000 / 10);
        format!(
            "the {library} found has no {symbol}, which came with CUDA {major}.{minor}; a newer {library} is needed"
        )
    }
}

/// The function pointers of one library.
pub trait FunctionTable: Sized {
    /// Fills a table with a library's functions. Also returns the first required call that the library lacks.
    ///
    /// # Safety
    /// The library is the one whose calls the table lists: each has the table's signature.
    unsafe fn from_library(library: Library) -> (Self, Option<&'static CallInfo>);
}

/// Evaluates to whether a line's first word says that the call is required.
macro_rules! requirement {
    (required) => {
        true
    };
    (optional) => {
        false
    };
}

/// Defines `Table`, `Call` and `CALLS`; see the module documentation.
macro_rules! calls {
    ($code:ty, $absent:expr; $( $need:ident $since:literal $name:ident ( $($arg:ident : $ty:ty),* $(,)? ); )*) => {
        /// The function pointers of one library. A call that the library lacks has a stub that returns the `ABSENT`
        /// code, so no pointer is ever null.
        #[derive(Clone, Copy)]
        #[allow(non_snake_case)]
        pub struct Table {
            $( pub $name: unsafe extern "C" fn($($ty),*) -> $code, )*
        }

        /// The calls, numbered in the table's order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types)]
        #[repr(u16)]
        pub enum Call { $( $name, )* }

        /// The table as data, indexed by [`Call`].
        pub const CALLS: &[$crate::calls::CallInfo] = &[
            $( $crate::calls::CallInfo {
                symbol: stringify!($name),
                c_symbol: match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(symbol) => symbol,
                    Err(_) => c"",
                },
                since: $since, required: $crate::calls::requirement!($need),
            }, )*
        ];

        impl Call {
            /// Every call, in the table's order.
            pub const ALL: &[Call] = &[ $( Call::$name, )* ];

            /// Returns the call's line of the table.
            pub fn info(self) -> &'static $crate::calls::CallInfo {
                &CALLS[self as usize]
            }
        }

        impl Table {
            /// Fills a table with the functions that `find` returns. `find` is called once per call; a call that it
            /// does not find gets its stub. Also returns the first required call that was not found.
            ///
            /// # Safety
            /// Each pointer that `find` returns is a function of that call's signature and stays valid for the life of
            /// the process.
            pub unsafe fn from_symbols(
                mut find: impl FnMut(Call) -> Option<*const std::ffi::c_void>,
            ) -> (Table, Option<Call>) {
                let mut missing = None;
                let table = Table {
                    $( $name: match find(Call::$name) {
                        Some(pointer) => {
                            // SAFETY: the caller promises that the pointer has this call's signature, and a
                            // function pointer has the size and representation of a data pointer on this platform.
                            unsafe {
                                std::mem::transmute::<
                                    *const std::ffi::c_void,
                                    unsafe extern "C" fn($($ty),*) -> $code,
                                >(pointer)
                            }
                        }
                        None => {
                            if $crate::calls::requirement!($need) {
                                missing = missing.or(Some(Call::$name));
                            }
                            absent::$name
                        }
                    }, )*
                };
                (table, missing)
            }
        }

        impl $crate::calls::FunctionTable for Table {
            unsafe fn from_library(
                library: $crate::library::Library,
            ) -> (Self, Option<&'static $crate::calls::CallInfo>) {
                // SAFETY: each call is looked up under its own symbol, for which the caller promises the signature. A
                // library is never closed.
                let (table, missing) = unsafe { Table::from_symbols(|call| library.symbol(call.info().c_symbol)) };
                (table, missing.map(Call::info))
            }
        }

        /// Stubs for calls that the library lacks.
        #[allow(non_snake_case)]
        mod absent {
            use super::*;
            $( pub unsafe extern "C" fn $name($( $arg: $ty ),*) -> $code {
                $( let _ = $arg; )*
                $absent
            } )*
        }
    };
}

/// Calls a function of a loaded library, which has a `table` and a method `check`, and checks the returned code.
macro_rules! library_call {
    ($library:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        $library.check(Call::$name, ($library.table.$name)($($argument),*))
    };
}

pub(crate) use calls;
pub(crate) use library_call;
pub(crate) use requirement;
