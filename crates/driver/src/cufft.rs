//! cuFFT, loaded at run time: plans and their execution.

#![allow(missing_docs)]

use super::{
    Span, Stream,
    calls::{calls, library_call},
    library::LibrarySpec,
    math::{self, ABSENT, Code, Loaded, MathLibrary, RawStream},
};
use crate::{error::Result, status::Status};
use std::{
    ffi::{c_int, c_longlong, c_void},
    ptr,
};

/// The `cufftHandle` of a plan.
pub type RawPlan = c_int;

/// The values of CUDA's `cudaDataType` that transforms support.
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

/// The process's cuFFT.
pub static LIBRARY: MathLibrary<Table> = MathLibrary::new(
    LibrarySpec {
        name: "cuFFT",
        variable: "PLINTH_CUFFT_LIBRARY",
        names: &[(13, c"libcufft.so.12"), (12, c"libcufft.so.11"), (11, c"libcufft.so.10")],
        in_toolkit: true,
        in_packages: &["nvidia/cu13/lib", "nvidia/cufft/lib"],
    },
    c"plinth_cufft_on_host_device",
);

/// A loaded cuFFT library.
pub type Cufft = Loaded<Table>;

/// A cuFFT plan. The caller of `destroy` must not use it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativePlan(RawPlan);

impl NativePlan {
    /// Returns the value that cuFFT calls take.
    pub fn number(self) -> i32 {
        self.0
    }
}

/// The element layout of the input or the output: cuFFT's advanced data layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The dimensions of the array that contains the signal.
    pub embed: [i64; 3],
    /// The stride of the innermost dimension, in elements.
    pub stride: i64,
    /// The distance between two signals of a batch, in elements.
    pub distance: i64,
}

/// The parameters of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub rank: usize,
    pub sizes: [i64; 3],
    pub batch: i64,
    /// The layouts of input and output; `None` for contiguous elements.
    pub layouts: Option<(Layout, Layout)>,
    /// The types of the input, the output and the computation.
    pub types: [c_int; 3],
}

const ERRORS: &[(Code, &str, Status)] = &[
    (1, "CUFFT_INVALID_PLAN", Status::LIBRARY),
    (2, "CUFFT_ALLOC_FAILED", Status::OUT_OF_MEMORY),
    (3, "CUFFT_INVALID_TYPE", Status::INVALID_VALUE),
    (4, "CUFFT_INVALID_VALUE", Status::INVALID_VALUE),
    (5, "CUFFT_INTERNAL_ERROR", Status::LIBRARY),
    (6, "CUFFT_EXEC_FAILED", Status::LIBRARY),
    (7, "CUFFT_SETUP_FAILED", Status::LIBRARY),
    (8, "CUFFT_INVALID_SIZE", Status::INVALID_VALUE),
    (9, "CUFFT_UNALIGNED_DATA", Status::INVALID_VALUE),
    (11, "CUFFT_INVALID_DEVICE", Status::LIBRARY),
    (13, "CUFFT_NO_WORKSPACE", Status::LIBRARY),
    (14, "CUFFT_NOT_IMPLEMENTED", Status::NOT_SUPPORTED),
    (16, "CUFFT_NOT_SUPPORTED", Status::NOT_SUPPORTED),
];

impl Cufft {
    fn check(&self, call: Call, code: Code) -> Result<()> {
        math::check(call.info(), code, ERRORS)
    }

    /// Creates a plan for the device whose context is current. Also returns the size of its work area in bytes.
    pub fn plan(&self, shape: &Shape) -> Result<(NativePlan, usize)> {
        let mut plan: RawPlan = 0;
        // SAFETY: the output is a live local.
        unsafe { library_call!(self, cufftCreate(&mut plan)) }?;
        let plan = NativePlan(plan);
        match self.fill(plan, shape) {
            Ok(work) => Ok((plan, work)),
            Err(error) => {
                // The error to report is why the plan could not be created.
                let _ = self.destroy(plan);
                Err(error)
            }
        }
    }

    fn fill(&self, plan: NativePlan, shape: &Shape) -> Result<usize> {
        // SAFETY: the plan was created above, and only this thread uses it. The same holds below.
        unsafe { library_call!(self, cufftSetAutoAllocation(plan.0, 0)) }?;
        let (mut sizes, mut work) = (shape.sizes, 0);
        // Without `embed` arrays cuFFT ignores the strides and distances.
        let plain = Layout { embed: [0; 3], stride: 1, distance: 1 };
        let (mut input, mut output) = shape.layouts.unwrap_or((plain, plain));
        let embed = |layout: &mut Layout| match shape.layouts {
            Some(_) => layout.embed.as_mut_ptr(),
            None => ptr::null_mut(),
        };
        // SAFETY: the arrays have three elements, and the rank is at most 3; the output is a live local.
        unsafe {
            library_call!(
                self,
                cufftXtMakePlanMany(
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
            )
        }?;
        Ok(work)
    }

    /// Destroys a plan that is no longer used.
    pub fn destroy(&self, plan: NativePlan) -> Result<()> {
        // SAFETY: the plan is live until this call, and its owner does not use it afterwards.
        unsafe { library_call!(self, cufftDestroy(plan.0)) }
    }

    /// Sets the stream of a plan that only this thread uses, and a work area allocated for that stream.
    pub fn set(&self, plan: NativePlan, stream: Stream, area: Span) -> Result<()> {
        // SAFETY: the plan is live and belongs to this thread, and the stream is a driver stream.
        unsafe { library_call!(self, cufftSetStream(plan.0, stream.handle() as RawStream)) }?;
        if area.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: the memory is a block of the allocator for this stream, of the size that the plan requires, and is
        // freed after the plan's work in the stream.
        unsafe { library_call!(self, cufftSetWorkArea(plan.0, area.address() as *mut c_void)) }
    }

    /// Executes a plan that only this thread uses.
    pub fn execute(&self, plan: NativePlan, input: Span, output: Span, direction: c_int) -> Result<()> {
        let (input, output) = (input.address() as *mut c_void, output.address() as *mut c_void);
        // SAFETY: the plan is live and belongs to this thread, and the constructors of the spans guarantee the memory
        // that the plan's shape requires.
        unsafe { library_call!(self, cufftXtExec(plan.0, input, output, direction)) }
    }
}
