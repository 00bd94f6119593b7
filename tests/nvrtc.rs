//! Checks that the jiterator's sources compile with NVRTC, for old and new architectures, to wide memory accesses.
//!
//! NVRTC needs no GPU. The version of tools/requirements.txt is used, and installed if it is missing. Each test runs in its
//! own process, with NVRTC's path in the environment.

mod toolkit;

use plinth::internal::{
    ops::jit::{layout::KernelClass, parse, scalar::Kind, source::KernelSpec},
    runtime::tensor::ElementType::{
        self, Bf16, Bool, Complex64, Complex128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64,
    },
};
use plinth_driver::{
    nvrtc::{self, Request},
    status::Status,
};
use std::process::Command;

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
