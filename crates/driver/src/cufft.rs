//! cuFFT, loaded at run time: plans, and carrying them out.

#![allow(missing_docs)]

use super::{
    Span, Stream,
    calls::calls,
    library::{Library, LibrarySpec},
    math::{self, failed},
};
use crate::{error::Result, status::Status};
use once_cell::sync::OnceCell;
use std::{
    ffi::{c_int, c_longlong, c_void},
    ptr,
};

/// What a call of cuFFT's returns: 0, or one of its `cufftResult`.
pub type Code = c_int;

const SUCCESS: Code = 0;
/// No code of cuFFT's: what the stand-in of an absent call returns.
const ABSENT: Code = -1;

/// What cuFFT calls a plan.
pub type RawPlan = c_int;
pub type RawStream = *mut c_void;

/// CUDA's `cudaDataType`, as far as transforms have them.
pub mod data_type {
    use super::c_int;
    pub const R_32F: c_int = 0;
    pub const R_64F: c_int = 1;
    pub const R_16F: c_int = 2;
    pub const C_32F: c_int = 4;
    pub const C_64F: c_int = 5;
    pub const C_16F: c_int = 6;
}

calls! {
    Code, ABSENT;
    required 11000 cufftCreate(plan: *mut RawPlan);
    required 11000 cufftDestroy(plan: RawPlan);
    required 11000 cufftSetAutoAllocation(plan: RawPlan, allocates: c_int);
    required 11000 cufftXtMakePlanMany(
        plan: RawPlan, rank: c_int, sizes: *mut c_longlong, input_embed: *mut c_longlong, input_stride: c_longlong,
        input_distance: c_longlong, input_type: c_int, output_embed: *mut c_longlong, output_stride: c_longlong,
        output_distance: c_longlong, output_type: c_int, batch: c_longlong, work: *mut usize, execution_type: c_int);
    required 11000 cufftSetWorkArea(plan: RawPlan, area: *mut c_void);
    required 11000 cufftSetStream(plan: RawPlan, stream: RawStream);
    required 11000 cufftXtExec(plan: RawPlan, input: *mut c_void, output: *mut c_void, direction: c_int);
}

const LIBRARY: LibrarySpec = LibrarySpec {
    what: "cuFFT",
    variable: "PLINTH_CUFFT_LIBRARY",
    names: &[(13, c"libcufft.so.12"), (12, c"libcufft.so.11"), (11, c"libcufft.so.10")],
    in_toolkit: true,
    in_packages: &["nvidia/cu13/lib", "nvidia/cufft/lib"],
};

/// A loaded cuFFT.
pub struct Cufft {
    table: Table,
    on_host_device: bool,
}

/// A plan of cuFFT's. Whoever destroys it forgets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativePlan(RawPlan);

impl NativePlan {
    /// What cuFFT's own calls take.
    pub fn number(self) -> i32 {
        self.0
    }
}

/// How the elements of one side lie: what cuFFT calls an advanced layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The extents of the array that the signal lies in.
    pub embed: [i64; 3],
    /// The distance of neighbours in the last dimension.
    pub stride: i64,
    /// The distance of one signal to the next.
    pub distance: i64,
}

/// What a plan is for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub rank: usize,
    pub sizes: [i64; 3],
    pub batch: i64,
    /// How both sides lie; `None` for elements side by side.
    pub layouts: Option<(Layout, Layout)>,
    /// The types of both sides, and that of the computation.
    pub types: [c_int; 3],
}

/// The one cuFFT of the process, loaded by now at the latest.
pub fn get() -> Result<&'static Cufft> {
    static CUFFT: OnceCell<Cufft> = OnceCell::new();
    CUFFT.get_or_try_init(|| {
        let fill = |library: Library| {
            // SAFETY: each call is looked for under its own symbol, whose signature the table states and which the
            // versions that are looked for all have. The library is never closed.
            let (table, missing) = unsafe { Table::from_symbols(|call| library.symbol(call.info().c_symbol)) };
            (table, missing.map(Call::info))
        };
        let (table, on_host_device) = math::load(&LIBRARY, c"plinth_cufft_on_host_device", fill)?;
        Ok(Cufft { table, on_host_device })
    })
}

fn check(call: Call, code: Code) -> Result<()> {
    if code == SUCCESS {
        return Ok(());
    }
    let (name, status) = match code {
        1 => ("CUFFT_INVALID_PLAN", Status::LIBRARY),
        2 => ("CUFFT_ALLOC_FAILED", Status::OUT_OF_MEMORY),
        3 => ("CUFFT_INVALID_TYPE", Status::INVALID_VALUE),
        4 => ("CUFFT_INVALID_VALUE", Status::INVALID_VALUE),
        5 => ("CUFFT_INTERNAL_ERROR", Status::LIBRARY),
        6 => ("CUFFT_EXEC_FAILED", Status::LIBRARY),
        7 => ("CUFFT_SETUP_FAILED", Status::LIBRARY),
        8 => ("CUFFT_INVALID_SIZE", Status::INVALID_VALUE),
        9 => ("CUFFT_UNALIGNED_DATA", Status::INVALID_VALUE),
        11 => ("CUFFT_INVALID_DEVICE", Status::LIBRARY),
        13 => ("CUFFT_NO_WORKSPACE", Status::LIBRARY),
        14 => ("CUFFT_NOT_IMPLEMENTED", Status::NOT_SUPPORTED),
        16 => ("CUFFT_NOT_SUPPORTED", Status::NOT_SUPPORTED),
        _ => ("", Status::LIBRARY),
    };
    Err(failed(call.info().symbol, code, name, status))
}

impl Cufft {
    /// Whether it works on the host device, as a stand-in for tests does.
    pub fn works_on_host_device(&self) -> bool {
        self.on_host_device
    }

    /// Makes a plan for the device whose context is current, and tells how many bytes of memory it needs to work with.
    pub fn plan(&self, shape: &Shape) -> Result<(NativePlan, usize)> {
        let mut plan: RawPlan = 0;
        // SAFETY: the output is a live local.
        check(Call::cufftCreate, unsafe { (self.table.cufftCreate)(&mut plan) })?;
        let plan = NativePlan(plan);
        match self.fill(plan, shape) {
            Ok(work) => Ok((plan, work)),
            Err(error) => {
                // The error that counts is why there is no plan.
                let _ = self.destroy(plan);
                Err(error)
            }
        }
    }

    fn fill(&self, plan: NativePlan, shape: &Shape) -> Result<usize> {
        // SAFETY: the plan was made and is this thread's alone; so it is below.
        check(Call::cufftSetAutoAllocation, unsafe { (self.table.cufftSetAutoAllocation)(plan.0, 0) })?;
        let (mut sizes, mut work) = (shape.sizes, 0);
        // Without extents cuFFT does not look at the distances.
        let plain = Layout { embed: [0; 3], stride: 1, distance: 1 };
        let (mut input, mut output) = shape.layouts.unwrap_or((plain, plain));
        let embed = |layout: &mut Layout| match shape.layouts {
            Some(_) => layout.embed.as_mut_ptr(),
            None => ptr::null_mut(),
        };
        // SAFETY: the arrays have three numbers, at least as many as the rank; the output is a live local.
        let code = unsafe {
            (self.table.cufftXtMakePlanMany)(
                plan.0,
                shape.rank as c_int,
                sizes.as_mut_ptr(),
                embed(&mut input),
                input.stride,
                input.distance,
                shape.types[0],
                embed(&mut output),
                output.stride,
                output.distance,
                shape.types[1],
                shape.batch,
                &mut work,
                shape.types[2],
            )
        };
        check(Call::cufftXtMakePlanMany, code)?;
        Ok(work)
    }

    /// Destroys a plan that nobody uses any more.
    pub fn destroy(&self, plan: NativePlan) -> Result<()> {
        // SAFETY: the plan is live until this call, after which its owner forgets it.
        check(Call::cufftDestroy, unsafe { (self.table.cufftDestroy)(plan.0) })
    }

    /// Lets a plan that this thread has alone work in a stream, with memory of the stream's.
    pub fn set(&self, plan: NativePlan, stream: Stream, area: Span) -> Result<()> {
        // SAFETY: the plan is live and this thread's, and the stream is the driver's own.
        let code = unsafe { (self.table.cufftSetStream)(plan.0, stream.handle() as RawStream) };
        check(Call::cufftSetStream, code)?;
        if area.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: the memory is a block of the allocator's for this stream, as large as the plan asked for, which is
        // freed behind the plan's work in the stream.
        check(Call::cufftSetWorkArea, unsafe { (self.table.cufftSetWorkArea)(plan.0, area.address() as *mut c_void) })
    }

    /// Carries a plan out that this thread has alone.
    pub fn execute(&self, plan: NativePlan, input: Span, output: Span, direction: c_int) -> Result<()> {
        let (input, output) = (input.address() as *mut c_void, output.address() as *mut c_void);
        // SAFETY: the plan is live and this thread's, and who made the spans vouched for as much memory as the plan's
        // shape has.
        check(Call::cufftXtExec, unsafe { (self.table.cufftXtExec)(plan.0, input, output, direction) })
    }
}
