//! Checks that the jiterator's sources compile with NVRTC, for old and new architectures, to wide memory accesses; and that
//! NVRTC accepts what the host device's compiler accepts.
//!
//! NVRTC needs no GPU. The version of tools/requirements.txt is used, and installed if it is missing. Each test runs in its
//! own process, with NVRTC's path in the environment.

mod toolkit;

use plinth::internal::{
    ops::jit::{
        layout::KernelClass,
        nvrtc_source::{Source, compile_image},
        parse,
        scalar::Kind,
        source::KernelSpec,
    },
    runtime::tensor::ElementType::{
        self, Bf16, Bool, Complex64, Complex128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64,
    },
};
use plinth_driver::{
    nvrtc::{self, Request},
    status::Status,
};
use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const CHILD: &str = "PLINTH_TEST_CHILD";

/// Runs the body of a test in a child process that finds NVRTC.
fn in_child(name: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some_and(|child| child == name) {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, name)
        .env("PLINTH_NVRTC_LIBRARY", toolkit::file("lib/libnvrtc.so.13"))
        .env("PLINTH_USE_KERNEL_CACHE", "0")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

const ALL: [ElementType; 15] = [F16, Bf16, F32, F64, U8, U16, U32, U64, I8, I16, I32, I64, Bool, Complex64, Complex128];
const ADD: &str = "template <typename T> T add(T x, T y) { return x + y; }";
const DENSE: KernelClass = KernelClass { vector: 4, rank: 0 };
const FEW: KernelClass = KernelClass { vector: 1, rank: 4 };
const MANY: KernelClass = KernelClass { vector: 1, rank: 25 };

fn source(
    code: &str,
    outputs: Option<usize>,
    inputs: &[ElementType],
    common: ElementType,
    scalars: &[Kind],
    class: KernelClass,
) -> String {
    let entry = parse::entry(code).unwrap();
    KernelSpec {
        code,
        entry: &entry,
        outputs: outputs.unwrap_or(1),
        by_reference: outputs.is_some(),
        inputs,
        common,
        scalars,
        class,
    }
    .source()
    .unwrap()
}

fn compile(source: &str, architecture: &str) -> plinth_driver::error::Result<Vec<u8>> {
    let options =
        [format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned(), "-default-device".to_owned()];
    let real = architecture.starts_with("sm_");
    let request = Request { source, name: "kernel.cu", options: &options, real, entry: None };
    let compiled = nvrtc::get()?.compile(&request)?;
    assert_eq!(compiled.log, "", "{source}");
    Ok(compiled.image.bytes().to_vec())
}

fn ptx(source: &str) -> String {
    String::from_utf8(compile(source, "compute_90").unwrap()).unwrap()
}

#[test]
fn every_type_compiles_without_a_warning() {
    in_child("every_type_compiles_without_a_warning", || {
        let (major, _) = nvrtc::get().unwrap().version();
        assert!(major >= 13 && nvrtc::get().unwrap().archs().contains(&90));
        for (index, element) in ALL.into_iter().enumerate() {
            let class = [DENSE, FEW, MANY][index % 3];
            assert!(!compile(&source(ADD, None, &[element; 2], element, &[], class), "sm_90").unwrap().is_empty());
        }
        for (common, inputs) in
            [(F32, [F16, Bf16]), (F16, [I64, F16]), (C, [Bool, C]), (I16, [U8, I8]), (F64, [F32, Bool])]
        {
            compile(&source(ADD, None, &inputs, common, &[], KernelClass { vector: 2, rank: 4 }), "sm_90").unwrap();
        }
        // Architectures before sm_80 have no instruction that converts to bfloat16.
        compile(&source(ADD, None, &[Bf16; 2], Bf16, &[], DENSE), "sm_75").unwrap();
    });
}

const C: ElementType = Complex64;

#[test]
fn all_features_of_functions_compile() {
    in_child("all_features_of_functions_compile", || {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let inputs: Vec<String> = names.iter().map(|name| format!("T {name}")).collect();
        let outputs: Vec<String> = names.iter().map(|name| format!("T &o{name}")).collect();
        let copies: String = names.iter().map(|name| format!("o{name} = {name}; ")).collect();
        let code =
            format!("template <typename T> void f({}, {}) {{ {copies} }}", inputs.join(", "), outputs.join(", "));
        for class in [DENSE, FEW, MANY, KernelClass { vector: 4, rank: 4 }] {
            compile(&source(&code, Some(8), &[F32; 8], F32, &[], class), "sm_90").unwrap();
        }
        let code =
            "template <typename T> T f(T z, bool n, int64_t i, double d, T c) { return n ? z * T(i) + T(d) : c; }";
        let kinds = [Kind::Bool, Kind::Int, Kind::Float, Kind::Complex];
        compile(&source(code, None, &[C], C, &kinds, MANY), "sm_90").unwrap();
        for function in [
            "exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan",
            "asinh", "acosh", "atanh",
        ] {
            let code = format!("template <typename T> T f(T z) {{ return {function}(z) + std::{function}(z); }}");
            for element in [C, F64] {
                compile(&source(&code, None, &[element], element, &[], FEW), "sm_90").unwrap();
            }
        }
        // The functions that c_tests/jiterator_complex.c calls without a header.
        for expression in [
            "std::exp(x) + exp2(x) + std::expm1(x) + log1p(x) + std::log2(x) + cbrt(x) + rsqrt(x + T(1)) + std::abs(x)",
            "std::fmax(x, T(2)) + fminf(x, 2) + max(x, T(3)) + std::min(x, T(3)) + std::fma(x, x, x) + fmod(x, T(2))",
            "erf(x) + std::erfc(x) + lgamma(x) + std::tgamma(x) + std::hypot(x, T(1)) + atan2(x, T(1)) + sinpi(x) + cospi(x)",
            "std::floor(x) + ceil(x) + std::trunc(x) + std::round(x) + rint(x) + std::copysign(x, T(-1)) + nextafter(x, T(9))",
            "isnan(x) || std::isinf(x) ? T(0) : std::isfinite(x) ? T(signbit(x)) : T(1)",
            "std::numeric_limits<T>::infinity() > x && x != T(NAN) ? std::numeric_limits<T>::max() : T(INFINITY)",
            "std::is_same<T, float>::value ? T(1) : T(std::is_floating_point<T>::value)",
            "x * T(M_PI) + T(__expf((float)x)) + T(std::numeric_limits<int64_t>::max() > 0) + T(sizeof(uint8_t) + sizeof(int16_t))",
        ] {
            let code = format!("template <typename T> T f(T x) {{ return {expression}; }}");
            for element in [F32, F64] {
                compile(&source(&code, None, &[element], element, &[], FEW), "sm_90").unwrap();
            }
        }
        for element in [I8, U8, I32, I64, U64] {
            let code = "template <typename T> T f(T x, T y) { return (x < y ? x : y) + T(x & y) + max(x, y) + std::min(x, y) \
                        + std::abs(int(x)) + std::numeric_limits<T>::max(); }";
            compile(&source(code, None, &[element; 2], element, &[], FEW), "sm_90").unwrap();
        }
        // A user may define macros with short names.
        let code = "#define N 3\n#define R 4\n#define K 5\ntemplate <typename T> T f(T x) { return x * T(N + R + K); }";
        compile(&source(code, None, &[F32], F32, &[], FEW), "sm_90").unwrap();
    });
}

#[test]
fn vectors_become_one_access() {
    in_child("vectors_become_one_access", || {
        let count = |text: &str, part: &str| text.matches(part).count();
        for (element, vector) in [(F32, 4), (F16, 8), (Bf16, 8), (F64, 2), (U8, 16), (I32, 4), (C, 2)] {
            let text = ptx(&source(ADD, None, &[element; 2], element, &[], KernelClass { vector, rank: 0 }));
            // Two rounds with two inputs and one output, 16 bytes each.
            let wide = |access: &str| {
                count(&text, &format!("{access}.global.v4."))
                    + count(&text, &format!("{access}.global.v2.u64"))
                    + count(&text, &format!("{access}.global.v2.b64"))
                    + count(&text, &format!("{access}.global.v2.f64"))
            };
            assert_eq!((wide("ld"), wide("st")), (4, 2), "{element}\n{text}");
            assert!(!text.contains(".local "), "{element}");
            let rows = ptx(&source(ADD, None, &[element; 2], element, &[], KernelClass { vector, rank: 4 }));
            assert!(!rows.contains(".local "), "{element}");
        }
        // Strided elements: four of each input are loaded before the first is used, without divisions.
        let text = ptx(&source(ADD, None, &[F32; 2], F32, &[], FEW));
        assert_eq!(
            (count(&text, "ld.global.f32") + count(&text, "ld.global.b32"), count(&text, "div.")),
            (8, 0),
            "{text}"
        );
        assert!(!text.contains(".local "));
    });
}

#[test]
fn a_log_has_the_users_line_numbers() {
    in_child("a_log_has_the_users_line_numbers", || {
        let code = "template <typename T> T h(T x) {\n  return x;\n}\ntemplate <typename T> T f(T x) {\n  return h(x) + nothing;\n}";
        let error = compile(&source(code, None, &[F32], F32, &[], DENSE), "sm_90").unwrap_err();
        assert_eq!(error.status(), Status::COMPILATION_FAILED);
        assert!(error.message().contains("jiterator(5): error"), "{error}");
        assert!(error.message().contains("nothing"), "{error}");
    });
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles CUDA C++ to PTX as `plinth_nvrtc_compile` does. Templates are not instantiated.
fn compile_cuda(text: &str) -> plinth_driver::error::Result<String> {
    compile_cuda_kernel(text, "last")
}

fn compile_cuda_kernel(text: &str, name: &str) -> plinth_driver::error::Result<String> {
    let text = format!("{text}\nextern \"C\" __global__ void last() {{}}\n");
    let include_dirs = [repository().join("include").display().to_string()];
    let source =
        Source { text: &text, name, capability: Some("compute_90"), include_dirs: &include_dirs, options: &[] };
    let (image, _) = compile_image(&source)?;
    Ok(String::from_utf8_lossy(image.bytes()).into_owned())
}

/// Returns the raw string literals of a program in C++ that have kernels, each with the number of its first line.
fn kernels_of(program: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in program.match_indices("R\"") {
        let Some((delimiter, rest)) = program[at + 2..].split_once('(') else { continue };
        if !delimiter.chars().all(char::is_alphanumeric) {
            continue;
        }
        let Some((text, _)) = rest.split_once(&format!("){delimiter}\"")) else { continue };
        if text.contains("__global__") {
            found.push((program[..at].lines().count(), text));
        }
    }
    found
}

#[test]
fn the_kernels_of_tests_and_benches_compile() {
    in_child("the_kernels_of_tests_and_benches_compile", || {
        // Each folder, and how many kernels it has at least.
        for (folder, least) in [("c_tests", 50), ("benches/host_kernels", 17), ("tests/docs", 1)] {
            let mut count = 0;
            let mut paths: Vec<PathBuf> =
                fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "cpp" || end == "h")) {
                let program = fs::read_to_string(path).unwrap();
                for (line, text) in kernels_of(&program) {
                    // The test that no compiler accepts.
                    let is_wrong = text.contains("threadldx");
                    let name = if text.contains("\nattention(") { "attention<true>" } else { "last" };
                    let outcome = compile_cuda_kernel(text, name);
                    assert_eq!(outcome.is_err(), is_wrong, "{}:{line}: {:?}", path.display(), outcome.err());
                    count += 1;
                }
            }
            assert!(count >= least, "{folder} has {count} kernels");
        }
    });
}

#[test]
fn functions_and_variables_need_no_execution_space() {
    in_child("functions_and_variables_need_no_execution_space", || {
        let ptx = compile_cuda(
            "constexpr int twice(int x) { return 2 * x; }\n\
             int table[2] = {1, 2};\n\
             struct Sum { int a; int with(int b) const { return a + b; } };\n\
             extern \"C\" __global__ void __launch_bounds__(twice(32)) f(int *out) { *out = Sum{table[*out]}.with(twice(*out)); }",
        );
        let ptx = ptx.unwrap();
        assert!(ptx.contains(".maxntid 64") && ptx.contains(".global .align 4 .b8 table[8]"), "{ptx}");
    });
}

/// Runs the C++ compiler with what every kernel on the host device has, on a text. Returns its output and its errors.
fn host_compiler(options: &[&str], text: &str) -> (String, String) {
    let mut child = Command::new("g++")
        .args([
            "-std=c++17",
            "-D__CUDA_ARCH__=900",
            "-I",
            "kernels/host",
            "-include",
            "plinth_host/kernel.h",
            "-x",
            "c++",
        ])
        .args(options)
        .arg("-")
        .current_dir(repository())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_host_device_has_no_macros_that_nvrtc_lacks() {
    in_child("the_host_device_has_no_macros_that_nvrtc_lacks", || {
        let name = |line: &str| {
            let rest = line.strip_prefix("#define ")?;
            rest.split([' ', '(']).next().map(str::to_owned)
        };
        // Macros of POSIX that libc's <stdlib.h> brings along, and glibc's constants for further types.
        let is_ignored = |name: &String| {
            name.starts_with(['_', 'W'])
                || ["PLINTH_", "FD_", "htobe", "htole"].iter().any(|start| name.starts_with(start))
                || ["_ENDIAN", "_ORDER", "toh", "FDBITS", "F32", "F32X", "F64", "F64X", "F128"]
                    .iter()
                    .any(|end| name.ends_with(end))
                || (name.starts_with("M_") && name.ends_with(|end: char| end.is_lowercase() || end.is_numeric()))
        };
        let (macros, _) = host_compiler(&["-dM", "-E"], "");
        // Our own: variables that are macros here, and the reason why a name of a type or `asm` is an error.
        let is_own = |line: &&str| {
            [
                "threadIdx",
                "blockIdx",
                "blockDim",
                "gridDim",
                "_needs_cuda_std_cstdint",
                "_is_no_type_of_CUDA",
                "inline_PTX",
            ]
            .iter()
            .any(|own| line.contains(own))
        };
        let names: BTreeSet<String> =
            macros.lines().filter(|line| !is_own(line)).filter_map(name).filter(|name| !is_ignored(name)).collect();
        assert!(names.contains("NULL") && names.contains("assert"), "{names:?}");
        let probe = |name: &String| format!("#ifndef {name}\nextern \"C\" __device__ int lacks_{name};\n#endif\n");
        let ptx = compile_cuda(&names.iter().map(probe).collect::<String>()).unwrap();
        let lacking: Vec<&String> = names.iter().filter(|name| ptx.contains(&format!("lacks_{name};"))).collect();
        assert_eq!(lacking, Vec::<&String>::new(), "undefine them in kernels/host/plinth_host/undeclared.h");
    });
}

#[test]
fn the_host_device_and_nvrtc_declare_the_same() {
    in_child("the_host_device_and_nvrtc_declare_the_same", || {
        let everywhere = [
            "INFINITY",
            "NAN",
            "HUGE_VAL",
            "M_PI",
            "FLT_MAX",
            "DBL_EPSILON",
            "INT_MAX",
            "UINT32_MAX",
            "CHAR_BIT",
            "RAND_MAX",
            "EOF",
            "uint32_t(1)",
            "int64_t(1)",
            "uint8_t(1)",
            "uintptr_t(1)",
            "uint(1)",
            "ushort(1)",
            "intmax_t(1)",
            "size_t(1)",
            "ptrdiff_t(1)",
            "clock_t(1)",
            "NULL",
            "CUDART_INF_F",
            "memcmp(out, out, 1)",
            "strlen(\"\")",
            "memcpy(out, out, 1)",
            "memset(out, 0, 1)",
            "printf(\"\")",
            "puts(\"\")",
            "sched_yield()",
            "malloc(1)",
            "clock()",
            "offsetof(float4, y)",
            "__int_as_float(0x7f800000)",
            "sizeof(FILE)",
            "snprintf((char *)out, 1, \"\")",
        ];
        let with_headers = [
            ("math_constants.h", "CUDART_INF_F", true),
            ("math_constants.h", "INFINITY", false),
            ("cuda_fp16.h", "uint32_t(1)", false),
            ("cuda_pipeline.h", "uint32_t(1)", true),
            ("cooperative_groups.h", "uint32_t(1) + INT_MAX", true),
            ("cooperative_groups.h", "INFINITY", false),
            ("cuda/std/cmath", "INFINITY + NAN + FP_NAN", true),
            ("cuda/std/cmath", "M_PI", false),
            ("cuda/std/cfloat", "FLT_MAX", false),
            ("cuda/std/climits", "INT_MAX + CHAR_BIT", true),
            ("cuda/std/cstdint", "UINT32_MAX + cuda::std::int64_t(1) + uint8_t(1)", true),
            ("cuda/std/cstddef", "offsetof(float4, y)", true),
            ("cuda/std/limits", "cuda::std::numeric_limits<float>::infinity()", true),
            ("cuda/std/algorithm", "1", false),
            ("cuda/std/string_view", "1", false),
        ];
        // Returns the numbers of the lines, from 1 on, that a compiler rejects.
        let rejected = |log: &str, before: &str, after: &str| -> BTreeSet<usize> {
            let number = |line: &str| line.split_once(before)?.1.split_once(after)?.0.parse().ok();
            log.lines().filter(|line| line.contains("error: ")).filter_map(number).collect()
        };
        let compare = |include: &str, expressions: &[&str]| {
            let mut text = String::from(include);
            for (index, expression) in expressions.iter().enumerate() {
                text += &format!("\n__global__ void f{index}(void **out) {{ (void)({expression}); }}");
            }
            let on_host = host_compiler(&["-fsyntax-only", "-w", "-ftrack-macro-expansion=0"], &text).1;
            let on_gpu = compile_cuda(&text).err().map(|error| error.message().to_owned()).unwrap_or_default();
            let lines = rejected(&on_host, "<stdin>:", ":");
            assert_eq!(lines, rejected(&on_gpu, "kernel.cu(", "): "), "{include} {expressions:?}\n{on_host}\n{on_gpu}");
            lines.len()
        };
        assert_eq!(everywhere.len() - compare("", &everywhere), 10);
        for (header, expression, is_there) in with_headers {
            assert_eq!(
                compare(&format!("#include <{header}>"), &[expression]) == 0,
                is_there,
                "{header}: {expression}"
            );
        }
    });
}
