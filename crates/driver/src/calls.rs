//! How a table of a library's calls is made: each line names a call once.
//!
//! ```text
//! calls! {
//!     Code, ABSENT;
//!     required 20000 ncclGetVersion(version: *mut c_int);
//!     optional 22800 ncclAlltoAll(...);
//! }
//! ```
//!
//! `Code` is what each call returns, `ABSENT` what the stand-in of a call returns that the library found does not have.
//! From the lines come, in the module that writes them: `Table`, the struct of function pointers, none of them ever null;
//! `Call`, the calls by number; and `CALLS`, the list as data.

use std::ffi::{CStr, c_int};

/// One line of a table, as data.
#[derive(Debug, Clone, Copy)]
pub struct CallInfo {
    /// The exported symbol, with its `_v2`-like suffix: what `dlsym` finds.
    pub symbol: &'static str,
    /// The same, as C reads it.
    pub c_symbol: &'static CStr,
    /// The version that brought it, as the library counts: 12000 is CUDA 12.0, 21800 is NCCL 2.18.0.
    pub since: c_int,
    /// Whether a library without this call is too old for plinth.
    pub required: bool,
}

impl CallInfo {
    /// The symbol without its version suffix.
    pub fn base_name(&self) -> &'static str {
        let end = self.symbol.len().saturating_sub(3);
        match self.symbol.get(end..) {
            Some("_v2" | "_v3") => &self.symbol[..end],
            _ => self.symbol,
        }
    }
}

/// Whether a line's first word says that the call is required.
macro_rules! requirement {
    (required) => {
        true
    };
    (optional) => {
        false
    };
}

/// See the module's comment.
macro_rules! calls {
    ($code:ty, $absent:expr; $( $need:ident $since:literal $name:ident ( $($arg:ident : $ty:ty),* $(,)? ); )*) => {
        /// The function pointers of one library. A call that it lacks is present as a stand-in that says so by its code,
        /// so no pointer is ever null.
        #[derive(Clone, Copy)]
        #[allow(non_snake_case)]
        pub struct Table {
            $( pub $name: unsafe extern "C" fn($($ty),*) -> $code, )*
        }

        /// The calls by number, in the table's order.
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

            /// The call's line of the table.
            pub fn info(self) -> &'static $crate::calls::CallInfo {
                &CALLS[self as usize]
            }
        }

        impl Table {
            /// Fills a table from `find`, which is asked once for each call; a call it does not find gets its
            /// stand-in. Beside the table stands the first call that is required and was not found.
            ///
            /// # Safety
            /// Each pointer that `find` returns is a function of that call's signature, valid for ever.
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

        /// Stand-ins for calls that the library lacks.
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

pub(crate) use calls;
pub(crate) use requirement;
