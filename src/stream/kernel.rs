//! The library's own kernels: embedded PTX that the driver compiles for the device that loads it.
//!
//! Each kernel is loaded separately, at its first launch on a device. The driver compiles the whole text that it
//! receives, and compiling the dozens of kernels that a program never uses would take seconds. Therefore the text
//! contains only one kernel; the others are removed. The sources are most of the library's size, so they are embedded
//! compressed.

use crate::{
    base::embedded::{CompressedText, embedded_text},
    driver::{Driver, Function},
    error::{Error, Result},
    runtime::{self, device::Device, per_device::PerDevice},
    stream,
};
use once_cell::sync::OnceCell;
use std::ffi::CString;

/// A PTX source, compiled for a virtual architecture in CUDA's numbering: 75 is compute_75, which every device of
/// compute capability 7.5 or newer supports.
struct Source {
    architecture: u32,
    ptx: CompressedText,
}

macro_rules! sources {
    ($( $name:ident = $file:literal for $architecture:literal; )*) => {
        $( const $name: Source = Source {
            architecture: $architecture,
            ptx: embedded_text!($file),
        }; )*
        #[cfg(test)]
        const SOURCES: &[Source] = &[ $( $name, )* ];
    };
}

sources! {
    SLEEP = "sleep.ptx" for 75;
    CONDITION = "condition.ptx" for 75;
    RANDOM = "random.ptx" for 75;
    RANDOM_HALF = "random_half.ptx" for 80;
    PERMUTATION = "permutation.ptx" for 75;
    COLLECTIVE = "collective.ptx" for 75;
    COLLECTIVE_FLOAT8 = "collective_float8.ptx" for 75;
    GROUP = "group.ptx" for 75;
    GROUP_FLOAT8 = "group_float8.ptx" for 75;
}

macro_rules! kernels {
    ($( $name:ident = $entry:literal in $source:ident; )*) => {
        /// The library's kernels.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kernel {
            $( #[doc = concat!("`", $entry, "`")] $name, )*
        }

        impl Kernel {
            /// All kernels.
            pub const ALL: &[Kernel] = &[ $( Kernel::$name, )* ];

            /// Returns the name of the entry point.
            pub fn entry(self) -> &'static str {
                match self { $( Kernel::$name => $entry, )* }
            }

            fn source(self) -> &'static Source {
                match self { $( Kernel::$name => &$source, )* }
            }
        }
    };
}

kernels! {
    Sleep = "plinth_sleep" in SLEEP;
    ConditionSet = "plinth_condition_set" in CONDITION;

    AdvanceOffset = "plinth_advance_offset" in RANDOM;
    StandardUniformF32 = "plinth_standard_uniform_f32" in RANDOM;
    StandardUniformF16 = "plinth_standard_uniform_f16" in RANDOM_HALF;
    StandardUniformBf16 = "plinth_standard_uniform_bf16" in RANDOM_HALF;
    UniformF16 = "plinth_uniform_f16" in RANDOM_HALF;
    UniformBf16 = "plinth_uniform_bf16" in RANDOM_HALF;
    UniformF32 = "plinth_uniform_f32" in RANDOM;
    UniformF64 = "plinth_uniform_f64" in RANDOM;
    UniformAny = "plinth_uniform_any" in RANDOM;
    UniformAnyF64 = "plinth_uniform_any_f64" in RANDOM;
    StandardNormalF32 = "plinth_standard_normal_f32" in RANDOM;
    StandardNormalF16 = "plinth_standard_normal_f16" in RANDOM_HALF;
    StandardNormalBf16 = "plinth_standard_normal_bf16" in RANDOM_HALF;
    NormalF16 = "plinth_normal_f16" in RANDOM_HALF;
    NormalBf16 = "plinth_normal_bf16" in RANDOM_HALF;
    NormalF32 = "plinth_normal_f32" in RANDOM;
    NormalF64 = "plinth_normal_f64" in RANDOM;
    NormalAny = "plinth_normal_any" in RANDOM;
    NormalAnyF64 = "plinth_normal_any_f64" in RANDOM;
    LogNormalF16 = "plinth_log_normal_f16" in RANDOM_HALF;
    LogNormalBf16 = "plinth_log_normal_bf16" in RANDOM_HALF;
    LogNormalF32 = "plinth_log_normal_f32" in RANDOM;
    LogNormalF64 = "plinth_log_normal_f64" in RANDOM;
    LogNormalAny = "plinth_log_normal_any" in RANDOM;
    LogNormalAnyF64 = "plinth_log_normal_any_f64" in RANDOM;
    ExponentialF16 = "plinth_exponential_f16" in RANDOM_HALF;
    ExponentialBf16 = "plinth_exponential_bf16" in RANDOM_HALF;
    ExponentialF32 = "plinth_exponential_f32" in RANDOM;
    ExponentialF64 = "plinth_exponential_f64" in RANDOM;
    ExponentialAny = "plinth_exponential_any" in RANDOM;
    ExponentialAnyF64 = "plinth_exponential_any_f64" in RANDOM;
    CauchyF16 = "plinth_cauchy_f16" in RANDOM_HALF;
    CauchyBf16 = "plinth_cauchy_bf16" in RANDOM_HALF;
    CauchyF32 = "plinth_cauchy_f32" in RANDOM;
    CauchyF64 = "plinth_cauchy_f64" in RANDOM;
    CauchyAny = "plinth_cauchy_any" in RANDOM;
    CauchyAnyF64 = "plinth_cauchy_any_f64" in RANDOM;
    GeometricF16 = "plinth_geometric_f16" in RANDOM_HALF;
    GeometricBf16 = "plinth_geometric_bf16" in RANDOM_HALF;
    GeometricF32 = "plinth_geometric_f32" in RANDOM;
    GeometricF64 = "plinth_geometric_f64" in RANDOM;
    GeometricI32 = "plinth_geometric_i32" in RANDOM;
    GeometricI64 = "plinth_geometric_i64" in RANDOM;
    GeometricAny = "plinth_geometric_any" in RANDOM;
    GeometricAnyF64 = "plinth_geometric_any_f64" in RANDOM;
    BernoulliB8 = "plinth_bernoulli_b8" in RANDOM;
    BernoulliB16 = "plinth_bernoulli_b16" in RANDOM;
    BernoulliB32 = "plinth_bernoulli_b32" in RANDOM;
    BernoulliB64 = "plinth_bernoulli_b64" in RANDOM;
    BernoulliF64 = "plinth_bernoulli_f64" in RANDOM;
    BernoulliAny = "plinth_bernoulli_any" in RANDOM;
    BernoulliAnyF64 = "plinth_bernoulli_any_f64" in RANDOM;
    BernoulliEachB8 = "plinth_bernoulli_each_b8" in RANDOM;
    BernoulliEachB16 = "plinth_bernoulli_each_b16" in RANDOM;
    BernoulliEachB32 = "plinth_bernoulli_each_b32" in RANDOM;
    BernoulliEachB64 = "plinth_bernoulli_each_b64" in RANDOM;
    BernoulliEachF64 = "plinth_bernoulli_each_f64" in RANDOM;
    IntegersB8 = "plinth_integers_b8" in RANDOM;
    IntegersB16 = "plinth_integers_b16" in RANDOM;
    IntegersB32 = "plinth_integers_b32" in RANDOM;
    IntegersB64 = "plinth_integers_b64" in RANDOM;
    IntegersAny = "plinth_integers_any" in RANDOM;
    Integers64B32 = "plinth_integers64_b32" in RANDOM;
    Integers64B64 = "plinth_integers64_b64" in RANDOM;
    Integers64Any = "plinth_integers64_any" in RANDOM;

    PermutationSmall = "plinth_permutation_small" in PERMUTATION;
    PermutationCount = "plinth_permutation_count" in PERMUTATION;
    PermutationDeal = "plinth_permutation_deal" in PERMUTATION;
    PermutationSort = "plinth_permutation_sort" in PERMUTATION;

    GroupCopy = "plinth_group_copy" in GROUP;
    GroupF16 = "plinth_group_f16" in GROUP;
    GroupBf16 = "plinth_group_bf16" in GROUP;
    GroupF32 = "plinth_group_f32" in GROUP;
    GroupF64 = "plinth_group_f64" in GROUP;
    GroupU8 = "plinth_group_u8" in GROUP;
    GroupI8 = "plinth_group_i8" in GROUP;
    GroupU16 = "plinth_group_u16" in GROUP;
    GroupI16 = "plinth_group_i16" in GROUP;
    GroupU32 = "plinth_group_u32" in GROUP;
    GroupI32 = "plinth_group_i32" in GROUP;
    GroupU64 = "plinth_group_u64" in GROUP;
    GroupI64 = "plinth_group_i64" in GROUP;
    GroupBool = "plinth_group_bool" in GROUP;
    GroupC64 = "plinth_group_c64" in GROUP;
    GroupC128 = "plinth_group_c128" in GROUP;
    GroupF8E4M3 = "plinth_group_e4m3" in GROUP_FLOAT8;
    GroupF8E5M2 = "plinth_group_e5m2" in GROUP_FLOAT8;
    GroupTransfer = "plinth_group_transfer" in GROUP;
    CommCopy = "plinth_comm_copy" in COLLECTIVE;
    CommStrided = "plinth_comm_strided" in COLLECTIVE;
    CommConvert = "plinth_comm_convert" in COLLECTIVE;
    CommReduceF16 = "plinth_comm_reduce_f16" in COLLECTIVE;
    CommReduceBf16 = "plinth_comm_reduce_bf16" in COLLECTIVE;
    CommReduceF32 = "plinth_comm_reduce_f32" in COLLECTIVE;
    CommReduceF64 = "plinth_comm_reduce_f64" in COLLECTIVE;
    CommReduceB8 = "plinth_comm_reduce_b8" in COLLECTIVE;
    CommReduceB16 = "plinth_comm_reduce_b16" in COLLECTIVE;
    CommReduceB32 = "plinth_comm_reduce_b32" in COLLECTIVE;
    CommReduceB64 = "plinth_comm_reduce_b64" in COLLECTIVE;
    CommReduceBool = "plinth_comm_reduce_bool" in COLLECTIVE;
    CommReduceF8E4M3 = "plinth_comm_reduce_e4m3" in COLLECTIVE_FLOAT8;
    CommReduceF8E5M2 = "plinth_comm_reduce_e5m2" in COLLECTIVE_FLOAT8;
}

const COUNT: usize = Kernel::ALL.len();

/// The loaded kernels of one device.
pub struct Kernels {
    functions: [OnceCell<Function>; COUNT],
}

impl Kernels {
    /// Creates an empty table.
    pub const fn new() -> Self {
        Kernels { functions: [const { OnceCell::new() }; COUNT] }
    }
}

impl Default for Kernels {
    fn default() -> Self {
        Self::new()
    }
}

impl Device {
    /// Returns a kernel, and loads it first if necessary.
    #[inline]
    pub fn kernel(&self, driver: &Driver, kernel: Kernel) -> Result<Function> {
        match self.kernels().functions[kernel as usize].get() {
            Some(function) => Ok(*function),
            None => self.load_kernel(driver, kernel),
        }
    }

    #[cold]
    fn load_kernel(&self, driver: &Driver, kernel: Kernel) -> Result<Function> {
        let function = self.kernels().functions[kernel as usize].get_or_try_init(|| {
            let ptx = c_text(extract_kernel(&kernel.source().ptx.decompress()?, kernel.entry()));
            let name = c_text(kernel.entry().to_string());
            self.with_context(driver, |driver| {
                let module = driver.with_relaxed_capture(|| driver.module_load(&ptx))??;
                Ok::<_, Error>(driver.module_function(module, &name)?)
            })
        });
        function.copied().map_err(|error: Error| error.context(format_args!("loading {}", kernel.entry())))
    }

    /// Returns whether the driver can compile a kernel for this device.
    pub fn supports_kernel(&self, driver: &Driver, kernel: Kernel) -> Result<bool> {
        let properties = self.properties(driver)?;
        Ok(properties.major * 10 + properties.minor >= kernel.source().architecture as i32)
    }
}

/// Converts a text for the driver. A test checks that the sources contain no NUL.
fn c_text(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Returns a PTX source with only one of its kernels.
fn extract_kernel(ptx: &str, entry: &str) -> String {
    const ENTRY: &str = ".visible .entry ";
    let mut kept = String::with_capacity(ptx.len() / 8);
    let mut rest = ptx;
    while let Some(start) = rest.find(ENTRY) {
        let (before, kernel) = rest.split_at(start);
        kept.push_str(before);
        let (kernel, after) = kernel.split_at(end_of_kernel(kernel));
        let name = &kernel[ENTRY.len()..];
        if name.strip_prefix(entry).is_some_and(|after_name| after_name.starts_with('(')) {
            kept.push_str(kernel);
        }
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// Returns the end of a kernel: after the brace that closes its body.
fn end_of_kernel(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Keeps a stream busy for a number of the multiprocessor's clock cycles.
pub fn sleep(cycles: u64, handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, handle)?;
    let function = runtime.device(stream.device() as i32)?.kernel(&runtime.driver, Kernel::Sleep)?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.launch_scalar(function, cycles, raw)?))
        .map_err(|error| error.context("launching plinth_sleep"))
}

/// Returns the virtual architectures that the kernels are compiled for.
pub fn architectures() -> Vec<u32> {
    let mut all: Vec<u32> = Kernel::ALL.iter().map(|kernel| kernel.source().architecture).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the architectures in the form of torch.cuda.get_arch_list.
pub fn arch_list() -> Vec<String> {
    architectures().iter().map(|number| format!("compute_{number}")).collect()
}

/// Returns the compiler flags for the architectures, in the form of torch.cuda.get_gencode_flags.
pub fn gencode_flags() -> String {
    let flags: Vec<String> = architectures()
        .iter()
        .map(|number| format!("-gencode compute=compute_{number},code=compute_{number}"))
        .collect();
    flags.join(" ")
}

impl Device {
    /// Returns the library's own kernels on the device, loaded at first use.
    #[inline]
    pub(super) fn kernels(&self) -> &'static Kernels {
        static VALUES: PerDevice<Kernels> = PerDevice::new();
        VALUES.of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sources_match_their_architecture_and_the_listed_kernels() {
        let mut listed = BTreeSet::new();
        for kernel in Kernel::ALL {
            let source = kernel.source();
            let ptx = source.ptx.decompress().unwrap();
            assert!(ptx.contains(&format!(".target sm_{}", source.architecture)));
            assert!(!ptx.contains('\0'));
            assert_eq!(ptx.matches(&format!(".entry {}(", kernel.entry())).count(), 1, "{}", kernel.entry());
            listed.insert(kernel.entry());
        }
        let count = |source: &Source| source.ptx.decompress().unwrap().matches(".entry ").count();
        assert_eq!(SOURCES.iter().map(count).sum::<usize>(), listed.len());
        assert_eq!(listed.len(), Kernel::ALL.len());
    }

    #[test]
    fn an_extracted_kernel_is_complete() {
        for kernel in Kernel::ALL {
            let ptx = extract_kernel(&kernel.source().ptx.decompress().unwrap(), kernel.entry());
            assert_eq!(ptx.matches(".entry ").count(), 1, "{}", kernel.entry());
            assert!(ptx.contains(&format!(".entry {}(", kernel.entry())));
            assert_eq!(ptx.matches('{').count(), ptx.matches('}').count());
            assert!(ptx.starts_with(".version"));
        }
    }

    #[test]
    fn the_host_device_has_each_kernel() {
        for kernel in Kernel::ALL {
            assert!(crate::host::kernels::find(kernel.entry().as_bytes()).is_some(), "{}", kernel.entry());
        }
    }

    #[test]
    fn flags_have_the_form_of_torch() {
        assert_eq!(
            gencode_flags(),
            "-gencode compute=compute_75,code=compute_75 -gencode compute=compute_80,code=compute_80"
        );
        assert_eq!(arch_list(), ["compute_75", "compute_80"]);
    }
}
